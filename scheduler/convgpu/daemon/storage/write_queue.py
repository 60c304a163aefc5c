"""Rows that wait for the disk; pure.

*Facts* have a key, and only the newest of each counts: there are no more of them than there are things. *Events* come
without end; when the disk takes nothing for long, the oldest are given up.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

# Events; more can only pile up while the disk takes nothing.
MOST_PENDING: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Row:
    """What is to be executed; `key` of a fact, None of an event."""

    statement: str
    values: Sequence[object]
    key: Hashable = None


class Pending:
    """`lost`: events that were given up so far."""

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
        """What was to be written of this is not true any more."""
        self._facts.pop(key, None)

    def take(self, most: int) -> list[Row]:
        """Take the next rows: facts, or if there are none, events: no event keeps a fact from being written."""
        if self._facts:
            return [self._facts.pop(key) for key in list(self._facts)[:most]]
        return [self._events.popleft() for _ in range(min(most, len(self._events)))]

    def give_back(self, rows: Sequence[Row]) -> None:
        """They could not be written: they are the next again, unless there are newer facts."""
        self._facts = {row.key: row for row in rows if row.key is not None} | self._facts
        self._events.extendleft(row for row in reversed(rows) if row.key is None)
        self._give_up()

    def _give_up(self) -> None:
        while len(self._events) > MOST_PENDING:
            self._events.popleft()
            self.lost += 1
