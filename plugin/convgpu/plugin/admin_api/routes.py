"""HTTP administration for people and tools: the scheduler's answers, unchanged (docs/protocol.md).

The plugin's socket is for root only, so every caller may also change limits, drain devices and choose the policy.
"""

import logging
import math
from typing import Final, TypeVar

import msgspec
from flask import Blueprint, Response, jsonify, request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException

from convgpu.client.scheduler import Scheduler, SchedulerRefused, SchedulerUnavailable
from convgpu.protocol.inspection.usage import STEPS
from convgpu.protocol.requests import (
    ChoosePlacement,
    ChoosePolicy,
    DrainDevice,
    FollowCalls,
    ListAllocations,
    ListContainers,
    ListDevices,
    ReadEvents,
    ReadHistory,
    ReadUsage,
    ResumeContainer,
    SetLimits,
    SuspendContainer,
)

_log: Final = logging.getLogger(__name__)

# Status of each of the scheduler's error codes.
_STATUS: Final = {"invalid": 400, "unknown": 404, "busy": 409, "failed": 503}


FieldT = TypeVar("FieldT")


class _Containers(msgspec.Struct):
    """Answer of `containers` whose rows are handed on as they are."""

    containers: list[msgspec.Raw]


_CONTAINERS: Final = msgspec.json.Decoder(_Containers)


class BadQuestion(ValueError):  # noqa: N818 - the state of a request
    """A query that this interface does not know; the text is for the user."""


def create_blueprint(scheduler: Scheduler, *, changes: bool = True) -> Blueprint:
    """Return the routes below `/v1`; without `changes` those that read."""
    blueprint = Blueprint("administration", __name__, url_prefix="/v1")

    @blueprint.get("/devices")
    def devices() -> Response:
        return _pass(scheduler.ask_json(ListDevices()))

    @blueprint.get("/containers")
    def containers() -> Response:
        return _pass(scheduler.ask_json(ListContainers()))

    @blueprint.get("/containers/<name>")
    def container(name: str) -> Response:
        found = _CONTAINERS.decode(scheduler.ask_json(ListContainers(name))).containers
        if not found:
            raise SchedulerRefused("unknown", f"there is no container {name}; `convgpu ps` lists them")
        return _pass(bytes(found[0]))

    @blueprint.get("/events")
    def events() -> Response:
        return _pass(scheduler.ask_json(ReadEvents(_since(request.args.get("since", "0")))))

    @blueprint.get("/policy")
    def policy() -> Response:
        return _pass(scheduler.ask_json(ChoosePolicy()))

    @blueprint.get("/placement")
    def placement() -> Response:
        return _pass(scheduler.ask_json(ChoosePlacement()))

    _add_past(blueprint, scheduler)
    _add_inspection(blueprint, scheduler)
    if changes:
        _add_changes(blueprint, scheduler)
    return blueprint


def _add_past(blueprint: Blueprint, scheduler: Scheduler) -> None:
    @blueprint.get("/history")
    def history() -> Response:
        return _pass(scheduler.ask_json(_read_history(request.args)))

    @blueprint.get("/usage")
    def usage() -> Response:
        return _pass(scheduler.ask_json(_read_usage(request.args)))


def _add_inspection(blueprint: Blueprint, scheduler: Scheduler) -> None:
    @blueprint.get("/containers/<name>/allocations")
    def allocations(name: str) -> Response:
        most = _count(request.args.get("most", str(ListAllocations(name).most)))
        return _pass(scheduler.ask_json(ListAllocations(name, most)))

    @blueprint.get("/containers/<name>/trace")
    def trace(name: str) -> Response:
        return _pass(scheduler.ask_json(FollowCalls(name, _since(request.args.get("since", "0")))))


def _add_changes(blueprint: Blueprint, scheduler: Scheduler) -> None:
    @blueprint.post("/containers/<name>/limits")
    def set_limits(name: str) -> Response:
        memory, wait, priority = map(_text_or_none, ("memory", "wait", "priority"))
        return _pass(scheduler.ask_json(SetLimits(name, memory, wait, priority, by=_by())))

    @blueprint.post("/containers/<name>/suspend")
    def suspend(name: str) -> Response:
        return _pass(scheduler.ask_json(SuspendContainer(name, deep=_flag("deep"))))

    @blueprint.post("/containers/<name>/resume")
    def resume(name: str) -> Response:
        return _pass(scheduler.ask_json(ResumeContainer(name)))

    @blueprint.post("/devices/<device>/drain")
    def drain(device: str) -> Response:
        return _pass(scheduler.ask_json(DrainDevice(device, _field("drained", bool), by=_by())))

    @blueprint.post("/policy")
    def choose_policy() -> Response:
        return _pass(scheduler.ask_json(ChoosePolicy(_field("policy", str), by=_by())))

    @blueprint.post("/placement")
    def choose_placement() -> Response:
        return _pass(scheduler.ask_json(ChoosePlacement(_field("policy", str), by=_by())))


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


def _pass(answer: bytes) -> Response:
    """Hand on what the scheduler wrote: nothing here need read the rows of a thousand containers."""
    return Response(answer, content_type="application/json")


def _since(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):  # the scheduler checks the bound
        raise BadQuestion(f"since={text}: must be the sequence number of an event")
    return int(text)


def _read_history(query: MultiDict[str, str]) -> ReadHistory:
    """Return the request for the history that a query asks for; the scheduler checks its values."""
    unknown = query.keys() - {"container", "kinds", "after", "limit"}
    if unknown:
        raise BadQuestion(f"{min(unknown)}: unknown; history knows container, kinds, after, limit")
    return ReadHistory(
        container=query.get("container"),
        kinds=tuple(query.getlist("kinds")),
        after=_number(query["after"]) if "after" in query else None,
        limit=_count(query["limit"]) if "limit" in query else ReadHistory().limit,
    )


def _read_usage(query: MultiDict[str, str]) -> ReadUsage:
    """Return the request for the usage that a query asks for."""
    unknown = query.keys() - {"step", "after"}
    if unknown:
        raise BadQuestion(f"{min(unknown)}: unknown; usage knows step, after")
    steps = {str(step): step for step in STEPS}
    step = query.get("step", "1")
    if step not in steps:
        raise BadQuestion(f"step={step}: give {', '.join(steps)} (seconds)")
    after = query.get("after", "0")
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise BadQuestion(f"after={after}: must be whole Unix seconds")
    return ReadUsage(step=steps[step], after=int(after))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadQuestion(f"after={text}: must be Unix seconds")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadQuestion(f"limit={text}: must be a number of events")
    return int(text)


def _field(name: str, kind: type[FieldT]) -> FieldT:
    """Return the field of the request's JSON object."""
    document = request.get_json(force=True, silent=True)
    value = document.get(name) if isinstance(document, dict) else None
    if not isinstance(value, kind):
        words = {str: "text", bool: "true or false"}[kind]
        raise BadQuestion(f'the request\'s body must be a JSON object with "{name}", which is {words}')
    return value


def _text_or_none(name: str) -> str | None:
    """Return the field of the request's JSON object; None without it."""
    document = request.get_json(force=True, silent=True)
    if not isinstance(document, dict):
        raise BadQuestion(f'the request\'s body must be a JSON object with "{name}" or others, which are text')
    return _field(name, str) if name in document else None


def _by() -> str:
    """Return who asks for a change, as root says: nobody else reaches the socket."""
    document = request.get_json(force=True, silent=True)
    by = document.get("by", "") if isinstance(document, dict) else ""
    if not isinstance(by, str):
        raise BadQuestion('"by" must be text: who asks for the change')
    return by


def _flag(name: str) -> bool:
    """Return the field of the request's query: `true`, or `false` and without it no."""
    text = request.args.get(name, "false")
    if text not in {"true", "false"}:
        raise BadQuestion(f"{name}={text}: give true or false")
    return text == "true"


def _error(status: int, code: str, text: str) -> Response:
    response = jsonify({"error": {"code": code, "text": text}})
    response.status_code = status
    return response
