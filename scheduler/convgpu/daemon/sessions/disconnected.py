"""Disconnected sessions: the connection has ended, but the process may live and reconnect.

A process that dies closes its socket while the kernel ends it (PF_EXITING); its memory is returned at once. A process
that lives closed the socket itself (a daemon that closes all its files, an exec) or was cut off. It keeps its leases
until it dies, or until the time to reconnect is over and it holds nothing by the driver's count.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from convgpu.daemon.sessions.session import Session
from convgpu.daemon.system.procfs import is_alive
from convgpu.daemon.transport.shares import Shares

log = logging.getLogger(__name__)

# Seconds; the hook tries to reconnect at least once a second.
RECONNECT_GRACE: Final = 3.0


class DisconnectedSessions:
    """Waits for the process behind a lost connection.

    Args:
        shares: of the event loop: processes of a container that end together take turns with those of others.
        may_hold: says whether the driver may still count memory for the process of a session.
        on_end: called once for a session whose process has ended, or does not reconnect and holds nothing.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shares: Shares,
        may_hold: Callable[[Session], Awaitable[bool]],
        on_end: Callable[[Session], None],
    ) -> None:
        self._loop = loop
        self._shares = shares
        self._may_hold = may_hold
        self._on_end = on_end
        self._waits: dict[Session, asyncio.Task[None]] = {}

    def add(self, session: Session) -> None:
        """Watch a session whose connection has ended."""
        if session.process is None or not is_alive(session.pid):
            self._on_end(session)
            return
        log.info("pid %d lives without its connection", session.pid)
        self._waits[session] = self._loop.create_task(self._wait(session))
        self._shares.of(session.container).add_reader(session.process, partial(self._end, session))

    def forget(self, session: Session) -> None:
        """Stop watching a session whose process reconnected."""
        wait = self._waits.pop(session, None)
        if wait is not None and session.process is not None:
            wait.cancel()
            self._shares.of(session.container).remove_reader(session.process)

    async def _wait(self, session: Session) -> None:
        """Wait for a reconnect. A stopped process (`docker pause`) keeps its memory."""
        await asyncio.sleep(RECONNECT_GRACE)
        while await self._may_hold(session):
            await asyncio.sleep(RECONNECT_GRACE)
        self._end(session)

    def _end(self, session: Session) -> None:
        self.forget(session)
        self._on_end(session)
