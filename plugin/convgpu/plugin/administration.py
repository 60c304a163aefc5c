"""HTTP administration for people and tools: what the scheduler says, as it says it (docs/protocol.md)."""

import logging
from typing import Final

from flask import Blueprint, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from convgpu.client.admin import SchedulerRefused, SchedulerUnavailable
from convgpu.plugin.scheduler import Scheduler

_log: Final = logging.getLogger(__name__)

# Status of each of the scheduler's error codes.
_STATUS: Final = {"invalid": 400, "unknown": 404, "busy": 409, "failed": 503}


class BadQuestion(ValueError):  # noqa: N818 - the state of a request
    """A query that this interface does not know; the text is for the user."""


def create_blueprint(scheduler: Scheduler) -> Blueprint:
    """Return the routes below `/v1`."""
    blueprint = Blueprint("administration", __name__, url_prefix="/v1")

    @blueprint.get("/devices")
    def devices() -> Response:
        return jsonify(scheduler.request("devices"))

    @blueprint.get("/containers")
    def containers() -> Response:
        return jsonify(scheduler.request("containers"))

    @blueprint.get("/containers/<name>")
    def container(name: str) -> Response:
        found = scheduler.request("containers", name=name).get("containers")
        if not isinstance(found, list) or not found:
            raise SchedulerRefused("unknown", f"there is no container {name}; `convgpu ps` lists them")
        return jsonify(found[0])

    @blueprint.get("/events")
    def events() -> Response:
        return jsonify(scheduler.request("events", since=_since(request.args.get("since", "0"))))

    return blueprint


def administration_error(error: Exception) -> Response:
    """Turn any error of a request below `/v1` into its JSON form and status."""
    match error:
        case SchedulerRefused(code=code):
            return _error(_STATUS.get(code, 400), code, str(error))
        case SchedulerUnavailable():
            return _error(503, "unavailable", str(error))
        case BadQuestion():
            return _error(400, "malformed", str(error))
        case HTTPException(code=status, description=description):
            return _error(status or 500, "http", str(description))
        case _:
            _log.error("request failed", exc_info=error)
            return _error(500, "internal", "the plugin failed; its log says why")


def _since(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadQuestion(f"since={text}: must be the sequence number of an event")
    return int(text)


def _error(status: int, code: str, text: str) -> Response:
    response = jsonify({"error": {"code": code, "text": text}})
    response.status_code = status
    return response
