"""The write-behind queue: rows that wait to be committed; pure.

*Facts* have a key, and only the newest of each key counts, so that their number is bounded. *Events* come without end:
when the disk takes nothing for long, the oldest are given up.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

# Events; more can only pile up while the disk takes nothing.
MAX_QUEUED_EVENTS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Row:
    """A statement with its values; `key`: of a fact, None for an event."""

    statement: str
    values: Sequence[object]
    key: Hashable = None


class WriteQueue:
    """Rows to write; `lost`: events that were given up so far."""

    def __init__(self) -> None:
        self.lost = 0
        self._facts: dict[Hashable, Row] = {}
        self._events: deque[Row] = deque()

    def __len__(self) -> int:
        return len(self._facts) + len(self._events)

    def add(self, row: Row) -> None:
        """Add a row: behind all others, or in the place of an older fact."""
        if row.key is not None:
            self._facts[row.key] = row
            return
        self._events.append(row)
        self._give_up()

    def forget(self, key: Hashable) -> None:
        """Drop the fact of this key: it is not true any more."""
        self._facts.pop(key, None)

    def forget_where(self, is_void: Callable[[Hashable], bool]) -> None:
        """Drop the facts whose keys are void: what they describe exists no more."""
        self._facts = {key: row for key, row in self._facts.items() if not is_void(key)}

    def take(self, limit: int) -> list[Row]:
        """Take the next rows: facts first, then events, so that no event delays a fact."""
        if self._facts:
            return [self._facts.pop(key) for key in list(self._facts)[:limit]]
        return [self._events.popleft() for _ in range(min(limit, len(self._events)))]

    def give_back(self, rows: Sequence[Row]) -> None:
        """Put rows that could not be written back to the front; newer facts replace them."""
        self._facts = {row.key: row for row in rows if row.key is not None} | self._facts
        self._events.extendleft(row for row in reversed(rows) if row.key is None)
        self._give_up()

    def _give_up(self) -> None:
        while len(self._events) > MAX_QUEUED_EVENTS:
            self._events.popleft()
            self.lost += 1
