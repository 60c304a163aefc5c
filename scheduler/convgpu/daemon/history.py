"""The newest decisions and deaths, for people who ask what happened."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from convgpu.daemon.totals import Counting

log = logging.getLogger(__name__)

LENGTH: Final = 4096


class History:
    """Keeps the newest events, numbered from 1.

    Args:
        wall_clock: gives Unix seconds.
    """

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._counting = Counting()
        self._events: deque[dict[str, object]] = deque(maxlen=LENGTH)
        self._next = 1

    def add(self, kind: str, container: str, cause: str, **fields: object) -> None:
        """Record an event (docs/protocol.md, Event); fields that are None are left out."""
        event: dict[str, object] = {"sequence": self._next, "time": self._wall_clock(), "cause": cause}
        event |= {"kind": kind, "container": container}
        known = {name: value for name, value in fields.items() if value is not None}
        event |= known
        self._counting.count(kind, fields.get("waited"))
        log.info("%s %s %s", kind, container, known, extra={"cause": cause, "event": event})
        self._events.append(event)
        self._next += 1

    def since(self, sequence: int) -> dict[str, object]:
        """Return the kept events with at least that number, and the number that comes next."""
        newest = [event for event in self._events if int(str(event["sequence"])) >= sequence]
        return {"events": newest, "next": self._next, "totals": self._counting.totals()}
