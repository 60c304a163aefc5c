"""The authorization calls: every call of the Engine's API waits for two of them."""

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from convgpu.authz.judge import Judge
from convgpu.authz.requests.callers import caller
from convgpu.authz.requests.routes import is_judged, route
from convgpu.authz.site.rules import Rules
from convgpu.authz.verdict import NOT_JUDGED, Denied, Refusal, Verdict, allow
from convgpu.client.scheduler import SchedulerRefused, SchedulerUnavailable
from convgpu.plugin.docker_api import wire

_log: Final = logging.getLogger(__name__)

# In the addresses of calls that prepare a program for `docker exec`, which strict rules note, or start a container. One
# that is spelled otherwise is not noted.
_PREPARES: Final = b"/exec"
# In answers about starts; the address may be spelled with them.
_STARTS: Final = (b"/start", b"/restart", b"%")
_WOULD_BE: Final = "would be denied: %.300s of %s: %s"
PASS: Final = wire.encode_authorization(allow=True, message="")


def pass_at_once(path: str, raw: bytes, *, strict: bool = False) -> bytes | None:
    """Return the answer to a question that needs no judgement, else None. Never waits.

    Args:
        path: of the plugin's call.
        raw: its body.
        strict: every call is judged that is not open to everybody.
    """
    if path == wire.AUTHORIZE_RESPONSE:
        # The Engine has carried the call out: to deny now would only hide that.
        is_noted = (strict and _PREPARES in raw) or any(word in raw for word in _STARTS)
        return None if is_noted else PASS
    if path != wire.AUTHORIZE_REQUEST:
        return None
    try:
        request = wire.decode_authorization(raw)
        return None if is_judged(request.method, request.uri, strict=strict) else PASS
    except (wire.Malformed, Denied):
        return None  # who judges it says so


class Authorizer:
    """Answers `AuthZReq`; never raises, and denies what it cannot judge.

    Args:
        judge: decides.
        rules: returns those of the site that are in force.
    """

    def __init__(self, judge: Judge, rules: Callable[[], Rules]) -> None:
        self._judge = judge
        self._rules = rules
        # Calls that were judged: a growing number proves that the Engine asks. Threads may lose single increments.
        self.judged = 0

    def answer(self, raw: bytes) -> bytes:
        """Return the encoded answer to the encoded question."""
        try:
            verdict = self._decide(wire.decode_authorization(raw))
        except wire.Malformed as error:
            verdict = Refusal("request-malformed", str(error)).verdict()
        except (SchedulerUnavailable, SchedulerRefused) as error:
            text = f"{error}; nobody can tell what the volume limits."
            verdict = Refusal("scheduler-unavailable", text).verdict()
        except Exception:
            # Whatever it was, an answer that is no answer would only be retried by the Engine.
            _log.exception("a call could not be judged")
            text = "the call could not be judged; the plugin's log says why."
            verdict = Refusal("not-understood", text).verdict()
        if verdict.allow:
            return PASS
        _log.warning("denied: %s", _logged(verdict))
        return wire.encode_authorization(allow=False, message=verdict.message)

    def note(self, raw: bytes) -> bytes:
        """Note what the Engine answered: who prepared which program, and that a start is over. Return our answer."""
        rules = self._rules()
        try:
            request = wire.decode_authorization(raw)
            call = route(request.method, request.uri, strict=rules.strict_list is not None)
            if call is not None:
                made = request.answer() if request.status == HTTPStatus.CREATED else b""
                self._judge.note(call, made, caller(request.user, request.user_method), rules)
        except Denied:
            return PASS  # nobody has judged it by its address, so nothing of it was begun
        except Exception:
            # What is not noted is refused when it is to start, or counts as starting for a while.
            _log.exception("an answer of the Engine could not be read")
        return PASS

    @property
    def is_strict(self) -> bool:
        """Whether every call is judged that is not open to everybody."""
        return self._rules().strict_list is not None

    def _decide(self, request: wire.AuthorizationRequest) -> Verdict:
        rules = self._rules()
        user = caller(request.user, request.user_method)
        free = "off" if rules.mode == "off" else "administrator" if user in rules.administrators else ""
        try:
            call = route(request.method, request.uri, strict=rules.strict_list is not None)
        except Denied as denied:
            self.judged += 1
            if not free and rules.mode == "audit":
                _log.warning(_WOULD_BE, request.uri, user, denied.refusal.text)
                free = "audit"
            # Of a start that passes so no permission is noted, as nobody knows of which container it is.
            return allow(free) if free else denied.refusal.verdict()
        if call is None:
            return NOT_JUDGED
        self.judged += 1
        if free:
            self._judge.permit(call)
            return allow(free)
        if rules.mode in {"enforce", "strict"}:
            return self._judge.judge(call, request.body(), user, rules, request.headers)
        try:
            verdict = self._judge.judge(call, request.body(), user, rules, request.headers)
            if verdict.allow:
                return verdict
            reason = _logged(verdict)
        except Exception as error:  # whatever it is: in this mode nothing is in anybody's way
            reason = f"{type(error).__name__}: {error}"
        _log.warning(_WOULD_BE, request.uri, user, reason)
        self._judge.permit(call)
        return allow("audit")


def _logged(verdict: Verdict) -> str:
    return f"{verdict.message}\n({verdict.detail})" if verdict.detail else verdict.message
