"""Connections that have not said HELLO: for how long, and how many of them, of a container and of all together."""

import asyncio
import logging
from typing import Final

from convgpu.daemon.system.descriptors import Descriptors
from convgpu.daemon.transport.connection import Connection

log = logging.getLogger(__name__)

HELLO_TIMEOUT: Final = 10.0
MAX_SILENT_CONNECTIONS: Final = 1024  # of a container


class SilentConnections:
    """Bounds them: each has ten seconds, and all containers together a quarter of the descriptors (decision 170).

    Who takes most gives way: the oldest connection of the container that has most of them is closed for a new one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptors: Descriptors) -> None:
        self._loop = loop
        self._descriptors = descriptors
        self._most = descriptors.limit // 4
        self._timers: dict[str, dict[Connection, asyncio.TimerHandle]] = {}
        self._total = 0

    def has_room(self, container: str) -> bool:
        """Say whether one more connection of a container may come; for it another one may be closed."""
        count = len(self._timers.get(container, ()))
        if count >= MAX_SILENT_CONNECTIONS:
            log.warning("a connection to %s is refused: %d others have not said HELLO", container, count)
            return False
        is_scarce = self._descriptors.are_scarce()
        if is_scarce and not self._total:
            log.warning("a connection to %s is refused: descriptors are scarce; end some processes", container)
            return False
        if is_scarce or self._total >= self._most:
            self._close_one()
        return True

    def _close_one(self) -> None:
        crowd = max(self._timers.values(), key=len)
        next(iter(crowd)).close(f"its container has {len(crowd)} connections that have not said HELLO")

    def add(self, container: str, connection: Connection) -> None:
        """Close a connection unless it is removed within ten seconds."""
        timer = self._loop.call_later(HELLO_TIMEOUT, connection.close, "no HELLO")
        self._timers.setdefault(container, {})[connection] = timer
        self._total += 1

    def remove(self, container: str, connection: Connection) -> None:
        """Forget a connection that has said HELLO or has ended; an unknown one is no error."""
        timers = self._timers.get(container, {})
        timer = timers.pop(connection, None)
        if timer is None:
            return
        timer.cancel()
        self._total -= 1
        if not timers:
            del self._timers[container]

    def of(self, container: str) -> list[Connection]:
        """Return those of a container, the oldest first."""
        return list(self._timers.get(container, ()))

    def all(self) -> list[Connection]:
        """Return those of all containers."""
        return [connection for timers in self._timers.values() for connection in timers]
