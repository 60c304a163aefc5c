"""Overuse that rests on what a search of dead processes found: a search that begins after the look decides; pure.

What a search found may have been freed before the look, and then it is claimed from memory that is nobody's, or of
others. So it counts as far as it is found again.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from convgpu.core.audit.overuse import OveruseRow

# Seconds after which it counts though nobody told.
_LONGEST: Final = 10.0
# Looks of a row that wait for a search.
_MOST: Final = 100

FoundSince = Callable[[str, str, float], int | None]
"""Returns the bytes of a container on a device that a search found which began after a time; None: none has ended."""


class ClaimedOveruse:
    """Says which containers above their limits are so also by a search after the look.

    What was said last of one counts until a search decides about a later look, or it is not above its limit: then, what
    is said of the looks before counts in the look in which it is said.
    """

    def __init__(self) -> None:
        self._open: dict[OveruseRow, deque[tuple[float, int]]] = {}
        self._holds: set[OveruseRow] = set()

    def judge(self, device: str, doubtful: Mapping[str, int], at: float, found: FoundSince) -> set[OveruseRow]:
        """Take what a look at a device finds; return the rows of it that count.

        Args:
            device: UUID.
            doubtful: by container, how much of it a search must find, in bytes, for it to be above its limit.
            at: when the look had its figures, in seconds on the clock of `found`.
            found: tells of searches.
        """
        rows = {(name, device): size for name, size in doubtful.items()}
        counting = set[OveruseRow]()
        for row in {*rows, *(row for row in self._open if row[1] == device)}:
            looks = self._open.setdefault(row, deque(maxlen=_MOST))
            if row not in rows:
                self._holds.discard(row)
            self._decide(row, looks, at, found)
            if row in self._holds:
                counting.add(row)
            if row in rows:
                looks.append((at, rows[row]))
            elif not looks:
                del self._open[row]
                self._holds.discard(row)
        return counting

    def _decide(self, row: OveruseRow, looks: deque[tuple[float, int]], now: float, found: FoundSince) -> None:
        while looks:
            at, size = looks[0]
            told = found(*row, at)
            if told is None and now - at < _LONGEST:
                return
            if told is None or told >= size:
                self._holds.add(row)
            else:
                self._holds.discard(row)
            looks.popleft()
