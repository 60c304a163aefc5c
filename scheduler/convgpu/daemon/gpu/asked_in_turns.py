"""Asks about any number of processes for a bounded time; whoever is not asked about has what was told of it last."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

# In one request; the driver takes as many.
_PART: Final = 200


class AskedInTurns:
    """Knows what processes hold of a device; used by one thread at a time.

    For each process the driver looks at each of its clients: 10,000 of each are nearly 2 s, and who makes them would
    keep all others from being looked at. A host's usual processes are all asked about each time.

    Args:
        ask: returns what processes hold, in bytes by pid; who is missing holds nothing.
        seconds: for all answers together, more or less.
        clock: seconds.
    """

    def __init__(
        self, ask: Callable[[Sequence[int]], Mapping[int, int]], seconds: float, clock: Callable[[], float]
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._turn = 0
        self._turns: dict[int, int] = {}  # of the last question, by pid; for who has just come, of the one before
        self._sizes: dict[int, int] = {}

    def held(self, pids: AbstractSet[int], ended: AbstractSet[int] = frozenset()) -> dict[int, int]:
        """Return what these processes hold, in bytes; who is missing holds nothing, or was not asked about yet.

        Those who held something last time are among them, also if they have ended: the driver may keep it.

        Args:
            pids: of those who live.
            ended: of those who ended just now, and may have held something that nobody told of; as many as are asked
                about at once come first.

        Raises:
            OSError: the driver does not say; what was told before is forgotten.
            KeyError: it does not know the device; likewise.
        """
        wanted, end = pids | ended | self._sizes.keys(), self._clock() + self._seconds
        self._turn += 1
        self._turns = {pid: self._turns.get(pid, self._turn - 1) for pid in wanted}
        soonest = set(sorted(ended, key=lambda pid: (self._turns[pid], pid))[:_PART])
        order = sorted(wanted, key=lambda pid: (pid not in soonest, self._turns[pid], pid))
        for first in range(0, len(order), _PART):
            part = order[first : first + _PART]
            try:
                told = self._ask(part)
            except (KeyError, OSError):
                self._sizes = {}
                raise
            for pid in part:
                self._turns[pid] = self._turn
                self._sizes.pop(pid, None)
            self._sizes |= {pid: size for pid, size in told.items() if size}
            if self._clock() > end:
                break
        return dict(self._sizes)
