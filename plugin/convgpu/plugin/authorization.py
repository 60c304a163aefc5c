"""The authorization calls, answered in front of Flask: every call of the Engine's API waits for two of them."""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from convgpu.client.admin import SchedulerRefused, SchedulerUnavailable
from convgpu.plugin import api, authz, journal
from convgpu.plugin.limits import MOST, discard
from convgpu.plugin.scheduler import Scheduler, find_container

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_log: Final = logging.getLogger(__name__)

_PASS: Final = api.encode_authorization(allow=True, message="")


class Authorizer:
    """Answers `AuthZReq`; never raises, and denies what it cannot judge."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._name = name

    def answer(self, raw: bytes) -> bytes:
        """Return the encoded answer to the encoded question."""
        try:
            request = api.decode_authorization(raw)
            if not authz.is_judged(request.method, request.uri):
                return _PASS
            verdict = authz.judge(request.method, request.uri, request.body(), self._name, self._knows)
        except api.Malformed as error:
            verdict = authz.deny("request-malformed", str(error))
        except (SchedulerUnavailable, SchedulerRefused) as error:
            verdict = authz.deny("scheduler-unavailable", f"{error}; nobody can tell what the volume limits.")
        except Exception:
            # Whatever it was, an answer that is no answer would only be retried by the Engine.
            _log.exception("a call could not be judged")
            verdict = authz.deny("not-understood", "the call could not be judged; the plugin's log says why.")
        if verdict.allow:
            return _PASS
        _log.warning("denied: %s", verdict.message)
        return api.encode_authorization(allow=False, message=verdict.message)

    def _knows(self, volume: str) -> bool:
        return find_container(self._scheduler, volume) is not None


class AuthorizationGate:
    """WSGI: answers the two authorization paths itself and hands everything else on.

    Args:
        application: for everything else.
        answer: `AuthZReq`'s answer to its body.
    """

    def __init__(self, application: "WSGIApplication", answer: Callable[[bytes], bytes]) -> None:
        self._application = application
        self._answer = answer

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Serve one request."""
        path = environ.get("PATH_INFO")
        if path not in {api.AUTHORIZE_REQUEST, api.AUTHORIZE_RESPONSE} or environ["REQUEST_METHOD"] != "POST":
            return self._application(environ, start_response)
        journal.begin(path)
        raw = environ["wsgi.input"].read(MOST + 1)
        if path == api.AUTHORIZE_RESPONSE:
            # The Engine has carried the call out: to deny now would only hide what happened.
            reply = _PASS
        elif len(raw) > MOST:
            discard(environ["wsgi.input"])
            verdict = authz.deny("request-too-large", f"more than {MOST} bytes; make it smaller.")
            reply = api.encode_authorization(allow=False, message=verdict.message)
        else:
            reply = self._answer(raw)
        headers = [("Content-Type", api.CONTENT_TYPE), ("Content-Length", str(len(reply)))]
        start_response("200 OK", headers)
        return [reply]
