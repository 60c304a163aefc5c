"""Overuse: whether containers were above their limits, or took what others have, for too long; pure."""

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from convgpu.core.audit.attribution import TOLERATED

# Seconds without overuse that take back one with it.
_TO_FORGET: Final = 5
# Seconds above the limit that no moment of an honest program lasts: 74 ms were the most (docs/measurements.md).
NO_MOMENT: Final = 0.15
# Seconds between looks at a device whose time is spent: while somebody is above the limit, and else.
_LOOK_TWICE: Final = 0.2
_LOOK_OFTEN: Final = 0.5
# The part of an interval after which the next look comes on average, from the moment on at which it may come.
_MEAN: Final = 0.75

OveruseRow = tuple[str, str]  # container, device


def next_look(interval: float, chance: float) -> float:
    """Return after how many seconds to look again, at most `interval`.

    Who knew when the next look comes could hold memory between two of them. Some learn when one was (schedstat of our
    threads in /proc, decision 202): that says nothing about when the next one is, but that it is not within a moment
    that honest programs have.

    Args:
        interval: seconds.
        chance: from 0 to 1 (excluded), which nobody can guess.
    """
    soonest = min(NO_MOMENT, interval / 2)
    return min(interval, soonest - interval * _MEAN * math.log(1 - chance))


class TakenReserves:
    """Knows what each container was charged, without a session that accounts for it, while nobody lacked anything.

    Who is charged clearly more than that where others lack what they were granted, or what is reserved for them, took
    it: the hook would have had it wait. What lacks for another reason, as external memory, is nobody's doing.
    """

    def __init__(self) -> None:
        self._innocent: dict[str, Mapping[str, int]] = {}

    def find(self, device: str, charged: Mapping[str, int], tolerated: Mapping[str, int], *, lacks: bool) -> set[str]:
        """Return the containers that took what others lack.

        Args:
            device: UUID; nobody took what is charged when it is first asked about.
            charged: unleased memory by container, in bytes.
            tolerated: what each may hold beyond its leases. As much of what is charged is nobody's fault: many programs
                that begin together hold more, until the hook charges it.
            lacks: what was granted or is reserved lacks on the device, with what is charged.
        """
        innocent = charged
        if lacks:
            before = self._innocent.get(device, charged)
            innocent = {name: min(size, before.get(name, 0)) for name, size in charged.items()}
        self._innocent[device] = innocent
        return {
            name for name, size in charged.items() if size > innocent[name] + max(TOLERATED, tolerated.get(name, 0))
        }


class OveruseBudget:
    """Says who is above a limit where the time for that is spent: all containers of a device have one budget.

    What a look finds counts until the next one, once, however many are above their limits. Five seconds without anybody
    take back one: a device is overused for no more than about a sixth of the time, by whoever, and moments are
    forgotten. Where the budget is spent, whoever is above a limit for longer than a moment has been so for too long.

    Args:
        after: seconds above a limit after which the budget of a device is spent.
    """

    def __init__(self, after: float) -> None:
        self._most = after * _TO_FORGET
        self._is_no_moment = min(NO_MOMENT, after)
        self._counted: dict[str, float] = {}  # by device, in fifths of seconds, at most twice as many as are too many
        self._overused: AbstractSet[str] = frozenset()
        self._since: dict[OveruseRow, float] = {}
        self._at = 0.0

    def update(
        self, over: AbstractSet[OveruseRow], now: float, unjudged: AbstractSet[str] = frozenset()
    ) -> tuple[set[OveruseRow], set[OveruseRow]]:
        """Take what a look finds; return who is above a limit since this one, and who has been so for too long.

        Args:
            over: who is above a limit where.
            now: seconds on any clock.
            unjudged: devices that somebody uses of whom it is not known yet whether that is permitted.
        """
        passed, self._at = now - self._at, now
        for device, counted in list(self._counted.items()):
            more = passed * _TO_FORGET if device in self._overused else -passed
            self._counted[device] = min(counted + more, 2 * self._most)
            if self._counted[device] <= 0:
                del self._counted[device]
        self._overused = {device for _, device in over} | unjudged
        for device in self._overused:
            self._counted.setdefault(device, 0.0)
        fresh = set(over - self._since.keys())
        self._since = {row: self._since.get(row, now) for row in over}
        spent = self.spent
        return fresh, {
            row for row, since in self._since.items() if row[1] in spent and now - since >= self._is_no_moment
        }

    @property
    def spent(self) -> set[str]:
        """The devices whose budget is spent."""
        return {device for device, counted in self._counted.items() if counted >= self._most}

    @property
    def pause(self) -> float:
        """Seconds until devices whose budget is spent should be looked at again; infinite without any."""
        spent = self.spent
        if any(device in spent for _, device in self._since):
            return _LOOK_TWICE
        return _LOOK_OFTEN if spent else math.inf
