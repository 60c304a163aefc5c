"""The history of events: the newest in memory, all in the table `history`."""

import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from convgpu.daemon.storage.counters import EventCounters
from convgpu.daemon.storage.history_shares import HistoryShares
from convgpu.daemon.storage.run_times import RunTimes
from convgpu.daemon.storage.store import Store
from convgpu.daemon.storage.transactions import SLICE
from convgpu.daemon.storage.write_queue import MAX_QUEUED_EVENTS
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.requests import ReadHistory

log = logging.getLogger(__name__)

LENGTH: Final = 4096
_COLUMNS: Final = "sequence, time, kind, container, cause, device, size, waited, details"
# Fields of an event that have a column; the others are in `details`.
_PLAIN: Final = ("sequence", "time", "kind", "container", "cause", "uuid", "size", "waited")
_INSERT: Final = "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Reads only the oldest rows, so that its cost does not grow with the table.
_OLD: Final = (
    "SELECT max(sequence) FROM (SELECT sequence, time FROM history ORDER BY sequence "  # noqa: S608
    f"LIMIT {2 * SLICE}) WHERE time < ?"
)
_DELETE_OLD: Final = "DELETE FROM history WHERE sequence <= ?"
_DELETE: Final = "DELETE FROM history WHERE sequence IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on the history in the database: number of events, and their age in seconds."""

    rows: int
    age: float


class History:
    """Records events, numbered from 1 across restarts.

    Attributes:
        run_times: of images.

    Args:
        wall_clock: Unix seconds.
    """

    def __init__(self, wall_clock: Callable[[], float], store: Store, bounds: Bounds) -> None:
        self._wall_clock = wall_clock
        self._counters = EventCounters()
        self._database, self._settings = store.database, store.settings
        self._bounds = bounds
        self.run_times = RunTimes(store.database)
        newest = store.database.rows(f"SELECT {_COLUMNS} FROM history ORDER BY sequence DESC LIMIT {LENGTH}")  # noqa: S608
        self._events: deque[dict[str, object]] = deque(map(_event, reversed(newest)), maxlen=LENGTH)
        # A killed scheduler may have published numbers that it had not written yet: skip them.
        closed = store.settings.get("next event")
        last = int(str(self._events[-1]["sequence"])) if self._events else 0
        self._next = max(int(closed), last + 1) if closed else last + 1 + (MAX_QUEUED_EVENTS if last else 0)
        store.settings.forget("next event")
        rows = store.database.each("SELECT sequence, kind, container FROM history ORDER BY sequence")
        self._shares = HistoryShares(rows, bounds.rows)
        self._since_trim = SLICE

    def add(self, kind: str, container: str, cause: str, **fields: object) -> None:
        """Record an event (docs/protocol.md, Event); fields that are None are left out."""
        event: dict[str, object] = {"sequence": self._next, "time": self._wall_clock(), "cause": cause}
        event |= {"kind": kind, "container": container}
        present = {name: value for name, value in fields.items() if value is not None}
        event |= present
        self._counters.count(kind, fields.get("waited"))
        if kind == EventKind.ENDED:
            self.run_times.add(event)
        log.info("%s %s %s", kind, container, present, extra={"cause": cause, "event": event})
        self._events.append(event)
        self._shares.add(self._next, kind, container)
        self._next += 1
        details = {name: value for name, value in event.items() if name not in _PLAIN}
        self._database.later(_INSERT, (*(event.get(name) for name in _PLAIN), json.dumps(details)))
        self._trim()

    def _trim(self) -> None:
        """Delete events beyond the bounds, a little faster than new ones come."""
        self._since_trim += 1
        if self._since_trim <= SLICE:
            return
        self._since_trim = 0
        [(old,)] = self._database.rows(_OLD, (self._wall_clock() - self._bounds.age,))
        if old is not None:
            self._shares.forget_until(old)
            self._database.later(_DELETE_OLD, (old,))
        excess = self._shares.take_excess(2 * SLICE)
        if excess:
            self._database.later(_DELETE, (json.dumps(excess),))

    def close(self) -> None:
        """Save the next number. Raises OSError: it cannot be written."""
        self._settings.set("next event", str(self._next))

    def since(self, sequence: int) -> dict[str, object]:
        """Return the events in memory from this number on, the next number, and the totals."""
        newest = [event for event in self._events if int(str(event["sequence"])) >= sequence]
        return {"events": newest, "next": self._next, "totals": self._counters.totals()}

    async def past(self, query: ReadHistory) -> dict[str, object]:
        """Return the events that match a query, from database and memory, oldest first.

        Raises:
            OSError: the database cannot be read.
        """
        conditions, values = ["time >= ?"], [self._wall_clock() - self._bounds.age]
        if query.after is not None:
            conditions, values = [*conditions, "time > ?"], [*values, query.after]
        if query.container is not None:
            conditions, values = [*conditions, "container = ?"], [*values, query.container]  # type: ignore[list-item]
        if query.kinds:
            conditions.append(f"kind IN ({','.join('?' * len(query.kinds))})")
            values += query.kinds  # type: ignore[arg-type]
        where = " AND ".join(conditions)
        statement = f"SELECT {_COLUMNS} FROM history WHERE {where} ORDER BY sequence DESC LIMIT ?"  # noqa: S608
        written = await self._database.find(_event, statement, [*values, query.limit])
        found = {int(str(event["sequence"])): event for event in reversed(written)}
        found |= {int(str(event["sequence"])): event for event in self._events if _matches(event, query)}
        return {"events": [found[number] for number in sorted(found)][-query.limit :]}


def _event(row: tuple[object, ...]) -> dict[str, object]:
    *plain, details = row
    named = {name: value for name, value in zip(_PLAIN, plain, strict=True) if value is not None}
    return named | json.loads(str(details))  # type: ignore[no-any-return]


def _matches(event: dict[str, object], query: ReadHistory) -> bool:
    return (
        query.container in (None, event["container"])
        and (not query.kinds or event["kind"] in query.kinds)
        and (query.after is None or float(str(event["time"])) > query.after)
    )
