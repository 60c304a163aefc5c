"""A server for those who may read and change nothing: a process of its own, so that it delays no call of the Engine.

Its application has no route that changes anything, and none of the Engine's calls.
"""

import os
import time
from typing import Final

from flask import Flask, Response, jsonify, request
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import MethodNotAllowed, NotFound

from convgpu.client.admin import AdminClient
from convgpu.client.scheduler import Scheduler
from convgpu.plugin import log_setup
from convgpu.plugin.admin_api import dashboard, metrics, openapi
from convgpu.plugin.admin_api.routes import administration_error, create_blueprint
from convgpu.plugin.settings import read_settings

_TIMEOUT: Final = 10.0  # seconds for a request to the scheduler
_FORBIDDEN: Final = "your group may read here and change nothing; for that run this as root: sudo convgpu ..."


def create() -> Flask:
    """Return the application as the environment's settings describe it."""
    settings = read_settings(os.environ)
    return create_app(AdminClient(str(settings.admin_socket), _TIMEOUT, _TIMEOUT))


def create_app(scheduler: Scheduler) -> Flask:
    """Return an application that only reads."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = 0
    app.json.sort_keys = False  # type: ignore[attr-defined]  # Flask's own provider has it
    app.register_blueprint(create_blueprint(scheduler, changes=False))
    app.register_blueprint(dashboard.create_blueprint())
    app.register_blueprint(metrics.create_blueprint(scheduler, CollectorRegistry(), time.time))
    app.register_blueprint(openapi.create_blueprint())
    app.register_error_handler(Exception, _answer_error)
    app.before_request(_refuse_changes)
    app.before_request(lambda: log_setup.begin_request(request.path))
    app.teardown_request(lambda _: log_setup.end_request())
    return app


def _refuse_changes() -> Response | None:
    return None if request.method in {"GET", "HEAD"} else _forbid()


def _forbid() -> Response:
    response = jsonify({"error": {"code": "forbidden", "text": _FORBIDDEN}})
    response.status_code = 403
    return response


def _answer_error(error: Exception) -> Response:
    is_change = isinstance(error, MethodNotAllowed | NotFound) and request.method not in {"GET", "HEAD"}
    return _forbid() if is_change else administration_error(error)
