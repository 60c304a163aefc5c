"""The plugin's WSGI application: the Engine's calls by their own table, the administration by Flask."""

import logging
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from flask import Flask, Response, request
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from convgpu.authz.host_programs import HostProgramJudge
from convgpu.authz.site.rules_file import RulesFile
from convgpu.authz.unlimited import UnlimitedJudge
from convgpu.authz.verdict import Refusal
from convgpu.client.scheduler import Scheduler
from convgpu.plugin import log_setup
from convgpu.plugin.admin_api import dashboard, metrics, openapi
from convgpu.plugin.admin_api.routes import administration_error, create_blueprint
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.authorization import Authorizer
from convgpu.plugin.docker_api.authorization_status import create_judges, create_status
from convgpu.plugin.docker_api.body_limits import MAX_BODY, READ_TIMEOUT, Stream, discard
from convgpu.plugin.docker_api.engine_calls import EngineCalls
from convgpu.plugin.docker_api.readonly_mount import ReadOnlyMount
from convgpu.plugin.docker_api.volume_driver import VolumeDriver
from convgpu.plugin.settings import Settings

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_log: Final = logging.getLogger(__name__)


class _Unreadable(Exception):  # noqa: N818 - the state of a request
    """A body that cannot be read as a whole: status and text for a volume call, refusal for an authorization."""

    def __init__(self, status: int, text: str, refusal: Refusal) -> None:
        super().__init__(text)
        self.status = status
        self.refusal = refusal


class PluginApp(Flask):
    """Flask for the administration; a call of the Engine never gets that far, and has no other way in than `calls`."""

    calls: EngineCalls
    unlimited: UnlimitedJudge
    host_programs: HostProgramJudge

    def wsgi_app(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Serve one request."""
        path = environ.get("PATH_INFO", "")
        if path not in self.calls.paths:
            return super().wsgi_app(environ, start_response)
        status, reply = self._answer(path, environ)
        headers = [("Content-Type", wire.CONTENT_TYPE), ("Content-Length", str(len(reply)))]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [reply]

    def _answer(self, path: str, environ: "WSGIEnvironment") -> tuple[int, bytes]:
        method = environ["REQUEST_METHOD"]
        if method != "POST":
            return 405, wire.encode_error(f"{method} {path}: {HTTPStatus.METHOD_NOT_ALLOWED.phrase}")
        try:
            raw = _read_body(environ["wsgi.input"], environ.get("CONTENT_LENGTH") or None)
        except _Unreadable as error:
            _log.warning("%s refused: %s", path, error)
            if path not in {wire.AUTHORIZE_REQUEST, wire.AUTHORIZE_RESPONSE}:
                return error.status, wire.encode_error(str(error))
            if path == wire.AUTHORIZE_REQUEST or error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                return 200, wire.encode_authorization(allow=False, message=error.refusal.verdict().message)
            raw = b""  # the Engine's own answer, however long, is not judged
        return self.calls.answer(path, raw)


def _read_body(stream: Stream, length: str | None) -> bytes:
    """Return the whole body.

    Raises:
        _Unreadable: it is too long, its client fell silent, or it ended before its `length`.
    """
    try:
        raw = stream.read(MAX_BODY + 1)
        if len(raw) > MAX_BODY:
            discard(stream)
            refusal = Refusal("request-too-large", f"more than {MAX_BODY} bytes; make it smaller.")
            raise _Unreadable(413, f"the request is longer than {MAX_BODY} bytes", refusal)
    except OSError as error:
        refusal = Refusal("request-malformed", f"it did not go on for {READ_TIMEOUT} s: {error}.")
        raise _Unreadable(408, f"the request did not go on for {READ_TIMEOUT} s", refusal) from error
    if length is not None and len(raw) != int(length):
        refusal = Refusal("request-malformed", "it ended before its length.")
        raise _Unreadable(400, "the request ended before its length", refusal)
    return raw


def create_app(scheduler: Scheduler, settings: Settings, on_use: Callable[[], None] = lambda: None) -> PluginApp:
    """Return the application that serves Docker and the administration; `on_use` follows each mount and unmount."""
    app = PluginApp(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.json.sort_keys = False  # type: ignore[attr-defined]  # Flask's own provider has it
    registry = CollectorRegistry()
    figures = metrics.create_blueprint(scheduler, registry, time.time)  # first: the scheduler's figures lead /metrics
    site = RulesFile(settings.rules, settings.directory / "rules-in-force.toml")
    judges = create_judges(scheduler, settings, site)
    app.unlimited, app.host_programs = judges.unlimited, judges.host_programs
    authorizer = Authorizer(judges.calls, site.rules)
    driver = VolumeDriver(scheduler, ReadOnlyMount(settings.folders, settings.read_only_folders), on_use)
    app.calls = EngineCalls(driver, authorizer, metrics.CallDurations(registry).measure)
    app.register_blueprint(create_blueprint(scheduler))
    app.register_blueprint(dashboard.create_blueprint())
    app.register_blueprint(figures)
    app.register_blueprint(openapi.create_blueprint())
    app.register_blueprint(create_status(settings, site, judges.quotas, lambda: authorizer.judged))
    app.register_error_handler(Exception, _answer_error)
    app.before_request(lambda: log_setup.begin_request(request.path))
    app.teardown_request(lambda _: log_setup.end_request())
    return app


def _answer_error(error: Exception) -> Response:
    if isinstance(error, RequestEntityTooLarge):
        discard(request.environ["wsgi.input"])
    if request.path.startswith("/v1/"):
        return administration_error(error)
    status, text = _describe(error)
    return Response(wire.encode_error(text), status=status, content_type=wire.CONTENT_TYPE)


def _describe(error: Exception) -> tuple[int, str]:
    """Return the status and the text of any error; the Engine shows the text of every status but 200."""
    match error:
        case RequestEntityTooLarge():
            status, text = 413, f"the request is longer than {MAX_BODY} bytes"
        case BlockingIOError():
            status, text = 408, f"the request did not go on for {READ_TIMEOUT} s"
        case HTTPException(code=int(code)):
            status, text = code, f"{request.method} {request.path}: {error.name}"
        case _:
            _log.error("%s failed", request.path, exc_info=error)
            return 500, "the plugin failed; its log says why"
    _log.warning("%s refused: %s", request.path, text)
    return status, text
