"""Calls that take memory, followed live (decision 40).

What a process takes from its headroom the scheduler never hears of. So the pages of a followed container say how many
of these calls each process may report; the rest it counts. Nobody else pays for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.storage.history import History
from convgpu.logs.printable import printable
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.inspection import records
from convgpu.protocol.inspection.messages import Traced

IDLE: Final = 3.0  # seconds after the last question at which nobody follows any more
CALLS: Final = 1024  # of a container that may be reported from one question to the next
_LENGTH: Final = 4 * CALLS  # calls that are kept for followers
_KINDS: Final = frozenset({EventKind.ACCEPTED, EventKind.PAUSED, EventKind.GRANTED, EventKind.REJECTED})


@dataclass(slots=True)
class _Followed:
    """A container that is followed.

    Attributes:
        calls: the newest, numbered.
        next: number of the next call.
        fresh: reported since the last question, not numbered yet.
        credit: calls that each session may still report.
        missed: calls that were not reported one by one, since the last question.
        history: number of the next event of the history to look at.
        timer: ends it.
    """

    history: int
    timer: asyncio.TimerHandle
    calls: deque[records.TracedCall] = field(default_factory=lambda: deque(maxlen=_LENGTH))
    next: int = 0
    fresh: list[records.TracedCall] = field(default_factory=list)
    credit: dict[int, int] = field(default_factory=dict)
    missed: int = 0


class CallTracer:
    """Follows containers for as long as somebody asks.

    Args:
        registry: whose processes have the pages.
        history: has the calls that needed the scheduler.
        wall_clock: Unix seconds.
    """

    def __init__(self, registry: SessionRegistry, history: History, wall_clock: Callable[[], float]) -> None:
        self._registry = registry
        self._history = history
        self._wall_clock = wall_clock
        self._followed: dict[str, _Followed] = {}

    def follow(self, container: str, since: int) -> records.Trace:
        """Return the calls of a container from a number on, and let its processes report more."""
        timer = asyncio.get_running_loop().call_later(IDLE, self._stop, container)
        followed = self._followed.get(container)
        if followed is None:
            newest = int(str(self._history.since(1 << 62)["next"]))
            followed = self._followed[container] = _Followed(newest, timer)
        followed.timer.cancel()
        followed.timer = timer
        self._collect(container, followed)
        sessions = self._registry.of(container)
        for session in sessions:
            self._allow(session, followed, max(CALLS // len(sessions), 1))
        missed, followed.missed = followed.missed, 0
        return records.Trace(tuple(call for call in followed.calls if call.sequence >= since), followed.next, missed)

    def opened(self, session: Session) -> None:
        """Let a new process report from its first call on, if its container is followed."""
        followed = self._followed.get(session.container)
        if followed is not None:
            self._allow(session, followed, CALLS)

    def receive(self, session: Session, traced: Traced) -> None:
        """Note a call that a process reports; more of them than it may are only counted."""
        followed = self._followed.get(session.container)
        if followed is None or traced.device >= len(session.rows):
            return
        left = followed.credit.get(session.number, 0)
        if left == 0:
            followed.missed += 1
            return
        followed.credit[session.number] = left - 1
        call, uuid = printable(traced.call), session.rows[traced.device]
        who = (session.pid, session.program, call, uuid)
        followed.fresh.append(records.TracedCall(0, self._wall_clock(), EventKind.ACCEPTED, *who, traced.size))

    def _allow(self, session: Session, followed: _Followed, calls: int) -> None:
        rows = len(session.rows)
        for row in range(rows):
            followed.missed += session.page.trace(row, max(calls // rows, 1))
        followed.credit[session.number] = max(calls // max(rows, 1), 1) * rows

    def _collect(self, container: str, followed: _Followed) -> None:
        """Number what came since the last question: what processes reported, and what the scheduler answered."""
        newer = self._history.since(followed.history)
        followed.history = int(str(newer["next"]))
        answered = [_answered(event) for event in newer["events"] if _is_call(event, container)]  # type: ignore[attr-defined]
        for call in sorted([*followed.fresh, *answered], key=lambda call: call.time):
            followed.calls.append(msgspec.structs.replace(call, sequence=followed.next))
            followed.next += 1
        followed.fresh = []

    def _stop(self, container: str) -> None:
        del self._followed[container]
        for session in self._registry.of(container):
            for row in range(len(session.rows)):
                session.page.trace(row, None)


def _is_call(event: dict[str, object], container: str) -> bool:
    return event["container"] == container and event["kind"] in _KINDS


def _answered(event: dict[str, object]) -> records.TracedCall:
    """Return an event of the history as a call."""
    waited, reason = event.get("waited"), event.get("reason")
    return records.TracedCall(
        sequence=0,
        time=float(str(event["time"])),
        kind=str(event["kind"]),
        pid=int(str(event.get("pid", 0))),
        program=str(event.get("program", "")),
        call=str(event.get("call", "")),
        uuid=str(event.get("uuid", "")),
        size=int(str(event.get("size", 0))),
        waited=None if waited is None else float(str(waited)),
        reason=None if reason is None else str(reason),
    )
