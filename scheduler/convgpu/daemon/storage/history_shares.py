"""Which rows of the history go when there are too many of them; pure.

A container that has more events than others loses its own oldest first, so nobody's flood of events erases what is told
of others. What administrators did and what ended containers goes only when there is too much of that (decision 170).
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from convgpu.protocol.event_kinds import EventKind

KEPT: Final = frozenset(
    {
        EventKind.OVERUSED,
        EventKind.STOPPED,
        EventKind.LIMITED,
        EventKind.CHANGED,
        EventKind.DRAINED,
        EventKind.UNDRAINED,
        EventKind.POLICY,
    }
)
_KEPT_SHARE: Final = 10  # of all rows such kinds may have one in so many


class _Lanes(dict[str, deque[int]]):
    """Sequence numbers by container, each in rising order; `total`: how many."""

    total = 0

    def add(self, container: str, sequence: int) -> None:
        self.setdefault(container, deque()).append(sequence)
        self.total += 1

    def drop(self, container: str) -> int:
        lane = self[container]
        sequence = lane.popleft()
        if not lane:
            del self[container]
        self.total -= 1
        return sequence


class HistoryShares:
    """The numbers of all rows of the history, by container.

    Args:
        rows: sequence, kind and container of each row there is, in rising order.
        bound: how many there may be.
    """

    def __init__(self, rows: Iterable[tuple[int, str, str]], bound: int) -> None:
        self._bound = bound
        self._kept, self._others = _Lanes(), _Lanes()
        for sequence, kind, container in rows:
            self.add(sequence, kind, container)

    def add(self, sequence: int, kind: str, container: str) -> None:
        """Note a new row."""
        (self._kept if kind in KEPT else self._others).add(container, sequence)

    def take_excess(self, most: int) -> list[int]:
        """Return the numbers of up to `most` rows that are too many, and forget them."""
        kept = min(max(self._kept.total - self._bound // _KEPT_SHARE, 0), most)
        excess = min(self._kept.total + self._others.total - self._bound, most)
        others = min(max(excess - kept, 0), self._others.total)
        return _take(self._kept, min(kept, max(excess, 0))) + _take(self._others, others)

    def forget_until(self, sequence: int) -> None:
        """Forget the rows up to a number: they are too old."""
        for lanes in (self._kept, self._others):
            for container in [name for name, lane in lanes.items() if lane[0] <= sequence]:
                _drop_while(lanes, container, lambda oldest: oldest <= sequence)


def _drop_while(lanes: _Lanes, container: str, is_void: Callable[[int], bool]) -> None:
    while container in lanes and is_void(lanes[container][0]):
        lanes.drop(container)


def _take(lanes: _Lanes, count: int) -> list[int]:
    """Take rows, one after the other the oldest of the container that has most."""
    crowds = [(-len(lanes[name]), name) for name in heapq.nlargest(count, lanes, key=lambda name: len(lanes[name]))]
    taken = []
    for _ in range(count):
        size, name = crowds[0]
        taken.append(lanes.drop(name))
        heapq.heapreplace(crowds, (size + 1, name))
    return taken
