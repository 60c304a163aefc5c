"""Explains pauses: in the history when one begins, and to the process itself when it lasts."""

import asyncio
from collections.abc import Callable
from typing import Final

from convgpu.core.allocation.wait_reasons import Wait
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import PendingAllocation
from convgpu.daemon.transport.shared_page import NEVER
from convgpu.protocol.inspection.messages import Explained
from convgpu.protocol.wire import PageAble

LEAST_INTERVAL: Final = 10.0  # seconds between two lines about one GPU in one process
_LEAST: Final = 0.1
_MOST_NAMED: Final = 8  # containers in an event

_Explain = Callable[[str, int], Wait | None]  # by container and request
_Describe = Callable[[PendingAllocation, int, Wait], str]


class PauseNotices:
    """Sends EXPLAINED to processes whose allocations wait for longer than they, or the site, want to wait unexplained.

    Of several allocations of one process on one GPU, which have one cause, one is explained.

    Attributes:
        explain: returns why an allocation waits; set once there is a machine that is driven.
        describe: returns a pause as one line for its user; set once there are containers with names.

    Args:
        loop: runs the timers.
        sessions: the allocations that wait.
        after: seconds of a pause before it is explained; None: never, unless a process asks for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sessions: SessionRegistry, after: float | None) -> None:
        self._loop = loop
        self._sessions = sessions
        self._after = after
        self._explained: dict[tuple[int, str], tuple[int, float]] = {}  # by session and device: request and when
        self.explain: _Explain = lambda _container, _request: None
        self.describe: _Describe = lambda _pending, _size, _wait: ""

    def begin(self, request: int, pending: PendingAllocation, size: int) -> dict[str, object]:
        """Note that an allocation is paused, and return why, as fields of its event."""
        after = self._find_delay(pending)
        if after is not None:
            self._loop.call_later(after, self._notify, request, size, after)
        wait = self.explain(pending.session.container, request)
        if wait is None:
            return {}
        return {"reason": str(wait.reason), "behind": list(wait.behind[:_MOST_NAMED]) or None}

    def _find_delay(self, pending: PendingAllocation) -> float | None:
        page = pending.session.page
        wanted = page.notice() if page.is_able(PageAble.EXPLAINED) else NEVER
        if wanted == NEVER:
            return None
        return self._after if wanted == 0 else max(wanted / 1000, _LEAST)

    def _notify(self, request: int, size: int, after: float) -> None:
        """Explain a pause that lasts still, or wait while another one of the same cause is explained."""
        pending = self._sessions.pending.get(request)
        if pending is None:
            return
        key = (pending.session.number, pending.device)
        other, last = self._explained.get(key, (0, float("-inf")))
        now = self._loop.time()
        if other in self._sessions.pending and other != request:
            self._loop.call_later(max(after, 1.0), self._notify, request, size, after)
        elif now - last < LEAST_INTERVAL:
            self._loop.call_later(last + LEAST_INTERVAL - now, self._notify, request, size, after)
        elif (wait := self.explain(pending.session.container, request)) is None:  # it is looked at, for a moment
            self._loop.call_later(max(after, 1.0), self._notify, request, size, after)
        else:
            self._forget_ended()
            self._explained[key] = (request, now)
            pending.session.connection.send(Explained(self.describe(pending, size, wait)), pending.frame)

    def _forget_ended(self) -> None:
        ended = [key for key in self._explained if key[0] not in self._sessions.by_number]
        for key in ended:
            del self._explained[key]
