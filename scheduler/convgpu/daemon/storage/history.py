"""The history of events, for people: the newest in memory, the others in the table `history`."""

import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from convgpu.daemon.storage.counters import EventCounters
from convgpu.daemon.storage.store import Store
from convgpu.daemon.storage.transactions import SLICE
from convgpu.daemon.storage.write_queue import MAX_QUEUED_EVENTS
from convgpu.protocol.requests import ReadHistory

log = logging.getLogger(__name__)

LENGTH: Final = 4096
_COLUMNS: Final = "sequence, time, kind, container, cause, device, size, waited, details"
# Fields of an event that have a column; the others stand in `details`.
_PLAIN: Final = ("sequence", "time", "kind", "container", "cause", "uuid", "size", "waited")
_INSERT: Final = "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Reads the oldest rows only, so its cost does not grow with the table.
_TRIM: Final = (
    f"DELETE FROM history WHERE sequence IN (SELECT sequence FROM (SELECT sequence, time FROM history "  # noqa: S608
    f"ORDER BY sequence LIMIT {2 * SLICE}) WHERE sequence <= ? OR time < ?)"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the database keeps: so many events, none older than so many seconds."""

    rows: int
    age: float


class History:
    """Keeps events, numbered from 1 on over all restarts.

    Args:
        wall_clock: gives Unix seconds.
    """

    def __init__(self, wall_clock: Callable[[], float], store: Store, bounds: Bounds) -> None:
        self._wall_clock = wall_clock
        self._counters = EventCounters()
        self._database, self._settings = store.database, store.settings
        self._bounds = bounds
        newest = store.database.rows(f"SELECT {_COLUMNS} FROM history ORDER BY sequence DESC LIMIT {LENGTH}")  # noqa: S608
        self._events: deque[dict[str, object]] = deque(map(_event, reversed(newest)), maxlen=LENGTH)
        # A scheduler that was killed may have published numbers that it had not written yet: they are not used again.
        closed = store.settings.get("next event")
        last = int(str(self._events[-1]["sequence"])) if self._events else 0
        self._next = max(int(closed), last + 1) if closed else last + 1 + (MAX_QUEUED_EVENTS if last else 0)
        store.settings.set("next event", None)
        self._since_trim = SLICE

    def add(self, kind: str, container: str, cause: str, **fields: object) -> None:
        """Record an event (docs/protocol.md, Event); fields that are None are left out."""
        event: dict[str, object] = {"sequence": self._next, "time": self._wall_clock(), "cause": cause}
        event |= {"kind": kind, "container": container}
        known = {name: value for name, value in fields.items() if value is not None}
        event |= known
        self._counters.count(kind, fields.get("waited"))
        log.info("%s %s %s", kind, container, known, extra={"cause": cause, "event": event})
        self._events.append(event)
        self._next += 1
        details = {name: value for name, value in event.items() if name not in _PLAIN}
        self._database.later(_INSERT, (*(event.get(name) for name in _PLAIN), json.dumps(details)))
        self._trim()

    def _trim(self) -> None:
        """Delete what is too old, a little faster than new events come."""
        self._since_trim += 1
        if self._since_trim > SLICE:
            self._since_trim = 0
            bounds = (self._next - 1 - self._bounds.rows, self._wall_clock() - self._bounds.age)
            self._database.later(_TRIM, bounds)

    def close(self) -> None:
        """Note where to go on. Raises OSError: it cannot be written."""
        self._settings.set("next event", str(self._next))

    def since(self, sequence: int) -> dict[str, object]:
        """Return the events at hand with at least that number, and the number that comes next."""
        newest = [event for event in self._events if int(str(event["sequence"])) >= sequence]
        return {"events": newest, "next": self._next, "totals": self._counters.totals()}

    async def past(self, asked: ReadHistory) -> dict[str, object]:
        """Return what the database and the newest events have, oldest first.

        Raises:
            OSError: the database cannot be read.
        """
        conditions, values = ["time >= ?"], [self._wall_clock() - self._bounds.age]
        if asked.after is not None:
            conditions, values = [*conditions, "time > ?"], [*values, asked.after]
        if asked.container is not None:
            conditions, values = [*conditions, "container = ?"], [*values, asked.container]  # type: ignore[list-item]
        if asked.kinds:
            conditions.append(f"kind IN ({','.join('?' * len(asked.kinds))})")
            values += asked.kinds  # type: ignore[arg-type]
        where = " AND ".join(conditions)
        statement = f"SELECT {_COLUMNS} FROM history WHERE {where} ORDER BY sequence DESC LIMIT ?"  # noqa: S608
        written = await self._database.find(_event, statement, [*values, asked.limit])
        found = {int(str(event["sequence"])): event for event in reversed(written)}
        found |= {int(str(event["sequence"])): event for event in self._events if _is_asked(event, asked)}
        return {"events": [found[number] for number in sorted(found)][-asked.limit :]}


def _event(row: tuple[object, ...]) -> dict[str, object]:
    *plain, details = row
    named = {name: value for name, value in zip(_PLAIN, plain, strict=True) if value is not None}
    return named | json.loads(str(details))  # type: ignore[no-any-return]


def _is_asked(event: dict[str, object], asked: ReadHistory) -> bool:
    return (
        asked.container in (None, event["container"])
        and (not asked.kinds or event["kind"] in asked.kinds)
        and (asked.after is None or float(str(event["time"])) > asked.after)
    )
