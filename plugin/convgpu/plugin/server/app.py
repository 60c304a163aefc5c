"""HTTP on the plugin's socket: decode, ask the driver, encode."""

import logging
import time
from collections.abc import Callable
from typing import Final

from flask import Flask, Response, request
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from convgpu.authz.site.rules_file import SiteFile
from convgpu.plugin import log_setup
from convgpu.plugin.admin_api import dashboard, metrics, openapi
from convgpu.plugin.admin_api.routes import administration_error, create_blueprint
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.authorization import AuthorizationGate, Authorizer
from convgpu.plugin.docker_api.authorization_status import create_judge, create_status
from convgpu.plugin.docker_api.body_limits import MOST, SILENCE, discard
from convgpu.plugin.docker_api.readonly_mount import ReadOnlyView
from convgpu.plugin.docker_api.volume_calls import DockerCalls
from convgpu.plugin.docker_api.volume_driver import VolumeDriver
from convgpu.plugin.scheduler import Scheduler
from convgpu.plugin.settings import Settings

_log: Final = logging.getLogger(__name__)

# Where the application keeps `Answer`, for the worker.
DIRECT: Final = "convgpu-direct"
Answer = Callable[[str, bytes], tuple[int, bytes]]


def create_app(scheduler: Scheduler, settings: Settings, on_use: Callable[[], None] = lambda: None) -> Flask:
    """Return the application that serves Docker and the administration; `on_use` follows each mount and unmount."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MOST
    app.json.sort_keys = False  # type: ignore[attr-defined]  # Flask's own provider has it
    driver = VolumeDriver(scheduler, ReadOnlyView(settings.folders, settings.view), on_use)
    calls = DockerCalls(driver)
    for path in calls.paths:
        app.add_url_rule(path, endpoint=path, view_func=_view(calls, path), methods=["POST"])
    app.register_blueprint(create_blueprint(scheduler))
    app.register_blueprint(dashboard.create_blueprint())
    registry = CollectorRegistry()
    app.register_blueprint(metrics.create_blueprint(scheduler, registry, time.time))
    app.register_blueprint(openapi.create_blueprint())
    app.register_error_handler(Exception, _answer_error)
    app.before_request(lambda: log_setup.begin_request(request.path))
    app.teardown_request(lambda _: log_setup.end_request())
    site = SiteFile(settings.rules)
    authorizer = Authorizer(create_judge(scheduler, settings), site.rules)
    app.register_blueprint(create_status(settings, site, lambda: authorizer.judged))
    gate = AuthorizationGate(app.wsgi_app, authorizer.answer)
    timed = metrics.TimedCalls(gate, registry)
    app.wsgi_app = timed  # type: ignore[method-assign]
    app.extensions[DIRECT] = _directly(calls, timed)
    return app


def _directly(calls: DockerCalls, timed: metrics.TimedCalls) -> Answer:
    """Return what answers a call without Flask: the same, with the same cause and the same measure."""

    def answer(path: str, raw: bytes) -> tuple[int, bytes]:
        log_setup.begin_request(path)
        with timed.measure(path):
            reply = calls.answer(path, raw)
        log_setup.end_request()
        return reply

    return answer


def _view(calls: DockerCalls, path: str) -> Callable[[], Response]:
    def view() -> Response:
        # Raw data: the Engine names no content type, so Flask's own JSON would refuse it.
        status, body = calls.answer(path, request.get_data(cache=False))
        return _docker_response(body, status)

    return view


def _answer_error(error: Exception) -> Response:
    if isinstance(error, RequestEntityTooLarge):
        discard(request.environ["wsgi.input"])
    if request.path.startswith("/v1/"):
        return administration_error(error)
    status, text = _describe(error)
    return _docker_response(wire.encode_error(text), status)


def _describe(error: Exception) -> tuple[int, str]:
    """Return the status and the text of any error; the Engine shows the text of every status but 200."""
    match error:
        case RequestEntityTooLarge():
            status, text = 413, f"the request is longer than {MOST} bytes"
        case BlockingIOError():
            status, text = 408, f"the request did not go on for {SILENCE} s"
        case HTTPException(code=int(code)):
            status, text = code, f"{request.method} {request.path}: {error.name}"
        case _:
            _log.error("%s failed", request.path, exc_info=error)
            return 500, "the plugin failed; its log says why"
    _log.warning("%s refused: %s", request.path, text)
    return status, text


def _docker_response(body: bytes, status: int) -> Response:
    return Response(body, status=status, content_type=wire.CONTENT_TYPE)
