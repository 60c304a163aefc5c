"""Overuse: whether containers were above their limits, or took what others have, for too long; pure."""

import math
from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from convgpu.core.audit.attribution import TOLERATED

# Seconds without overuse that take back one with it.
_TO_FORGET: Final = 5
# Seconds above the limit that no moment of an honest program lasts: 74 ms were the most (docs/measurements.md).
NO_MOMENT: Final = 0.15
# Seconds between looks at a device whose time is spent: while somebody is above the limit, and else.
_LOOK_TWICE: Final = 0.2
_LOOK_OFTEN: Final = 0.5
# Seconds without something that are no end of it: a look that a container disturbs does not see all of its memory.
_NO_END: Final = 5.0
# The part of an interval after which the next look comes on average, from the moment on at which it may come.
_MEAN: Final = 0.75

OveruseRow = tuple[str, str]  # container, device
Name = TypeVar("Name", bound=Hashable)


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


class Spells:
    """Tells what begins, of names that looks find or do not find; some seconds without one are no end of it."""

    def __init__(self) -> None:
        self._last: dict[Hashable, float] = {}  # when each was found last
        self._at = 0.0

    def begun(self, found: AbstractSet[Name], now: float) -> set[Name]:
        """Take what a look finds, at seconds on any clock; return what no look found some seconds before."""
        self._last = {name: at for name, at in self._last.items() if at == self._at or now - at < _NO_END}
        self._at = now
        fresh = {name for name in found if name not in self._last}
        self._last |= dict.fromkeys(found, now)
        return fresh


def excess_of(size: int, limit: int, tolerated: int) -> int:
    """Return how much more a container holds than its limit and what is tolerated beyond its leases; all in bytes.

    Half of the limit at most: of the dead what they had is taken for what they leased, and nobody bounds that.
    """
    return size - limit - min(tolerated, limit // 2)


class TakenReserves:
    """Knows what each container was charged, without a session that accounts for it, while nobody lacked anything.

    Who is charged clearly more than that where others lack what they were granted, or what is reserved for them, took
    it: the hook would have had it wait. What lacks for another reason, as external memory, is nobody's doing. Nor is
    what its own ended processes had been granted and their children keep: it was granted to others before anybody saw.
    """

    def __init__(self) -> None:
        self._innocent: dict[str, Mapping[str, int]] = {}
        self._kept: dict[str, Mapping[str, int]] = {}

    def find(
        self,
        device: str,
        charged: Mapping[str, int],
        tolerated: Mapping[str, int],
        kept: Mapping[str, int],
        *,
        lacks: bool,
    ) -> set[str]:
        """Return the containers that took what others lack.

        Args:
            device: UUID; nobody took what is charged when it is first asked about.
            charged: unleased memory by container, in bytes.
            tolerated: what each may hold beyond its leases. As much of what is charged is nobody's fault: many programs
                that begin together hold more, until the hook charges it.
            kept: what children of its processes that ended just now may keep, and is not charged yet.
            lacks: what was granted or is reserved lacks on the device, with what is charged.
        """
        innocent = charged
        if lacks:
            before, had = self._innocent.get(device, charged), self._kept.get(device, {})
            innocent = {name: min(size, before.get(name, 0) + had.get(name, 0)) for name, size in charged.items()}
        self._kept[device] = kept
        self._innocent[device] = innocent
        return {
            name for name, size in charged.items() if size > innocent[name] + max(TOLERATED, tolerated.get(name, 0))
        }


class _Budget:
    """The time that something has for overuse: seconds without take back a fifth as many with it.

    Args:
        most: fifths of seconds of overuse after which the time is spent.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._counted: dict[str, float] = {}  # in fifths of seconds, at most twice as many as are too many
        self._overused: AbstractSet[str] = frozenset()

    def update(self, overused: AbstractSet[str], passed: float) -> None:
        """Take what a look finds; what the last one found lasted for so many seconds."""
        for key, counted in list(self._counted.items()):
            more = passed * _TO_FORGET if key in self._overused else -passed
            self._counted[key] = min(counted + more, 2 * self._most)
            if self._counted[key] <= 0:
                del self._counted[key]
        self._overused = overused
        for key in overused:
            self._counted.setdefault(key, 0.0)

    @property
    def running(self) -> AbstractSet[str]:
        """What has used up some of its time."""
        return self._counted.keys()

    @property
    def spent(self) -> set[str]:
        """What has used up all of it."""
        return {key for key, counted in self._counted.items() if counted >= self._most}


class OveruseBudget:
    """Says who is above a limit where the time for that is spent: that of a device, or the container's own.

    What a look finds counts until the next one, once, however many are above their limits. Five seconds without anybody
    take back one: a device is overused for no more than about a sixth of the time, by whoever, and moments are
    forgotten. Where the budget is spent, whoever is above a limit for longer than a moment has been so for too long.
    A container has as much time on all devices together: in turns among them it would be above on none for long.

    Args:
        after: seconds above a limit after which a budget is spent.
    """

    def __init__(self, after: float) -> None:
        self._is_no_moment = min(NO_MOMENT, after)
        self._devices, self._containers = _Budget(after * _TO_FORGET), _Budget(after * _TO_FORGET)
        self._known_as: Mapping[str, str] = {}
        self._places: dict[str, set[str]] = {}  # where each container was above its limit
        self._since: dict[OveruseRow, float] = {}
        self._spells = Spells()
        self._at = 0.0

    def update(
        self,
        over: AbstractSet[OveruseRow],
        now: float,
        unjudged: AbstractSet[str] = frozenset(),
        known_as: Mapping[str, str] | None = None,
    ) -> tuple[set[OveruseRow], set[OveruseRow]]:
        """Take what a look finds; return who is above a limit since this one, and who has been so for too long.

        Args:
            over: who is above a limit where; who was so some seconds before is not named again.
            now: seconds on any clock.
            unjudged: devices that somebody uses of whom it is not known yet whether that is permitted.
            known_as: another name of those that have two, by which their time is counted: without a limit on a device a
                container has its id there.
        """
        passed, self._at = now - self._at, now
        self._known_as = {name: known_as[name] for name, _ in over if name in known_as} if known_as else {}
        self._devices.update({device for _, device in over} | unjudged, passed)
        self._containers.update({self._name_of(row) for row in over}, passed)
        for row in over:
            self._places.setdefault(self._name_of(row), set()).add(row[1])
        self._places = {name: self._places[name] for name in self._containers.running}
        self._since = {row: self._since.get(row, now) for row in over}
        return self._spells.begun(over, now), {
            row for row, since in self._since.items() if self._is_spent(row) and self._is_long(now - since)
        }

    def _is_long(self, seconds: float) -> bool:
        return seconds >= self._is_no_moment

    def _name_of(self, row: OveruseRow) -> str:
        return self._known_as.get(row[0], row[0])

    def _is_spent(self, row: OveruseRow) -> bool:
        return self._name_of(row) in self._containers.spent or row[1] in self._devices.spent

    @property
    def spent(self) -> set[str]:
        """The devices to look at often: their budget is spent, or that of a container that was above a limit there."""
        return self._devices.spent.union(*(self._places[name] for name in self._containers.spent))

    @property
    def pause(self) -> float:
        """Seconds until devices whose budget is spent should be looked at again; infinite without any."""
        if any(self._is_spent(row) for row in self._since):
            return _LOOK_TWICE
        return _LOOK_OFTEN if self.spent else math.inf
