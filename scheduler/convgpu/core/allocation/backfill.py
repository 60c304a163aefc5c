"""Backfill: newcomers that provably cannot delay the overdue allocations behind which they are held back.

The proof is by claims: the newcomer counts as if it took its whole limits and never ended (docs/policies.md, Backfill).
After R. Lifka, The ANL/IBM SP Scheduling System (1995), with limits and ends in place of run times.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from math import inf
from operator import itemgetter
from typing import Final

from convgpu.core.allocation.admission import joint_containers, required, waits_for_holders
from convgpu.core.allocation.hold_back import HoldBack
from convgpu.core.allocation.turns import is_overdue
from convgpu.core.memory.ledger import CURRENT, Ledger, Needs
from convgpu.core.state import PendingAllocation, State
from convgpu.policies.memory.base import WaitingAllocation

_MOST_SUMS: Final = 1024  # of what holders may release; with more of them nothing is proved
_MOST_SIZES: Final = 44  # n different sizes have at least n (n + 1) / 2 + 1 sums

Turn = tuple[float, int]
Key = tuple[int, str]  # of Needs: scenario and device


class Backfill:
    """What may go on behind overdue allocations, in the present state.

    Args:
        state: of the machine; must not change while this is in use.
        held_back: the overdue allocations behind which newcomers are held back.
        sums: of what holders may release.
        devices: on which others than the overdue allocations of these are not concerned.
    """

    def __init__(self, state: State, held_back: HoldBack, sums: "ReleaseSums", devices: Iterable[str]) -> None:
        self._state = state
        self._devices = devices
        self._ledger = state.ledger
        self._held_back = held_back
        self._sums = sums
        self._room: Needs | None = None
        self._claims: dict[int, OverdueClaim] = {}  # by sequence of the overdue allocation, as far as computed
        # Of the overdue allocations regarded so far: their turns, and the most that a newcomer behind so many of them
        # may claim of each device.
        self._overdue = self._by_turn()
        self._turns: list[Turn] = []
        self._most: dict[Key, list[float]] = {}

    def passes(self, waiting: WaitingAllocation) -> bool:
        """Return whether an allocation is held back, so that it would go past overdue ones."""
        return self._held_back.find(self._state, waiting) is not None

    def is_free(self, waiting: WaitingAllocation) -> bool:
        """Return whether the whole limits are free with which an allocation comes."""
        sizes, free = self._claim(waiting), self._ledger.free
        return not any(size > free[device] for (scenario, device), size in sizes.items() if scenario == CURRENT)

    def cannot_delay(self, waiting: WaitingAllocation) -> bool:
        """Return whether one whose whole limits are free cannot delay any overdue allocation of an earlier turn."""
        names = joint_containers(self._state, waiting.container)
        return self._leaves_enough(waiting.turn, self._claim(waiting)) and self._ledger.can_all_end_beside(names)

    def _claim(self, waiting: WaitingAllocation) -> Needs:
        return self._ledger.needs(joint_containers(self._state, waiting.container))

    def most_behind(self, overdue: WaitingAllocation, device: str) -> float:
        """Return the most bytes of a device that a newcomer may claim that goes past one overdue allocation."""
        beside = self._overdue_claim(overdue)
        return self._most_beside(beside, (CURRENT, device)) if (CURRENT, device) in beside.needs else inf

    # -- the overdue allocations before a newcomer -------------------------------------------------------

    def _leaves_enough(self, turn: Turn, claim: Needs) -> bool:
        """Return whether none of the overdue allocations of an earlier turn would miss what a newcomer claims.

        They are regarded in the order of their turns, once for all newcomers, and only until one of them refuses.
        """
        regarded = bisect_left(self._turns, turn)
        if regarded and any(size > self._most[key][regarded - 1] for key, size in claim.items() if key in self._most):
            return False
        while not self._turns or self._turns[-1] < turn:
            overdue = next(self._overdue, None)
            if overdue is None:
                return True
            most = self._regard(overdue)
            if overdue.view.turn < turn and any(size > most.get(key, inf) for key, size in claim.items()):
                return False
        return True

    def _by_turn(self) -> Iterator[PendingAllocation]:
        """Yield the overdue allocations that wait for holders, in the order of their turns."""
        state = self._state
        devices = [device for device in self._devices if device not in state.drained]
        return (pending for _, pending in merge(*map(self._overdue_on, devices), key=itemgetter(0)))

    def _overdue_on(self, device: str) -> Iterator[tuple[Turn, PendingAllocation]]:
        for pending in self._state.queue.by_turn(device):
            if not is_overdue(self._state, pending.view, self._state.now):
                return
            if waits_for_holders(self._state, pending):
                yield pending.view.turn, pending

    def _regard(self, overdue: PendingAllocation) -> Mapping[Key, float]:
        """Regard a further overdue allocation; return the most that a newcomer may claim of its devices beside it."""
        claim = self._overdue_claim(overdue.view)
        most = {key: self._most_beside(claim, key) for key in claim.needs}
        for key in most.keys() - self._most.keys():
            self._most[key] = [inf] * len(self._turns)
        for key, minima in self._most.items():
            minima.append(min(minima[-1] if minima else inf, most.get(key, inf)))
        self._turns.append(overdue.view.turn)
        return most

    def _overdue_claim(self, overdue: WaitingAllocation) -> "OverdueClaim":
        """Return what an overdue allocation claims; computed once."""
        claim = self._claims.get(overdue.sequence)
        if claim is None:
            names, ledger = joint_containers(self._state, overdue.container), self._ledger
            newcomers = [name for name in names if name not in ledger.holders]
            needs = ledger.needs(names)
            lacking = needs if len(newcomers) == len(names) else ledger.needs(newcomers)
            if self._room is None:
                self._room = ledger.room_when_all_ended()
            room = self._room
            fits = not any(size > room[key] for key, size in lacking.items() if size)
            claim = OverdueClaim(needs, lacking, required(self._state, overdue), fits_at_last=fits)
            self._claims[overdue.sequence] = claim
        return claim

    def _most_beside(self, other: "OverdueClaim", key: Key) -> float:
        """Return the most that a newcomer may claim of a device of an overdue allocation's containers beside that.

        Two rules: the holders may never end so that `other` gets what it lacks without the newcomer only; and when all
        of them have ended, the whole limits of its containers are free. Less than 0: nobody may go past it.
        """
        if not other.fits_at_last or self._room is None:
            return -1
        most = other.most.get(key)
        if most is None:
            lacking, need = other.lacking.get(key), other.needs[key]
            most = self._room[key] - lacking if lacking else inf
            scenario, device = key
            if need and scenario == CURRENT:
                free = self._ledger.free[device]
                released = self._sums.least_release(device, other.sizes.get(device, need) - free)
                most = min(most, max(released - need + free, 0))
            other.most[key] = most
        return most


@dataclass(frozen=True, slots=True)
class OverdueClaim:
    """What an overdue allocation, and the containers that are granted memory with it, may keep newcomers from.

    Attributes:
        needs: what its containers may still be granted.
        lacking: the same of those of them that hold nothing.
        sizes: bytes by device that it waits for.
        fits_at_last: all that is lacking will be free when all holders have ended.
        most: by device, the most that a newcomer may claim beside it, as far as computed.
    """

    needs: Needs
    lacking: Needs
    sizes: Mapping[str, int]
    fits_at_last: bool
    most: dict[Key, float] = field(default_factory=dict)


class ReleaseSums:
    """What holders may release together of each device; remembered as long as none of their holdings changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sums: dict[str, tuple[int, list[int] | None]] = {}  # by device, with the number of changes before

    def least_release(self, device: str, least: int) -> float:
        """Return the least that some holders together hold of the device, of at least `least` bytes.

        Infinite if all hold less, and less than all sizes if there are too many sums to say.
        """
        changes, sums = self._sums.get(device, (-1, None))
        if changes != self._ledger.holdings.changes[device]:
            sums = subset_sums(self._holdings(device))
            self._sums[device] = self._ledger.holdings.changes[device], sums
        if sums is None:
            return -inf
        place = bisect_left(sums, least)
        return sums[place] if place < len(sums) else inf

    def _holdings(self, device: str) -> Mapping[int, int]:
        """Return how many holdings of each size above 0 there are: what holders were granted, and their charges."""
        ledger = self._ledger
        if ledger.usable[device] == ledger.capacity[device] + ledger.pool[device] + ledger.beyond[device]:
            return ledger.holdings.sizes[device]  # nothing is charged
        accounts = (ledger.accounts[name].get(device) for name in ledger.holders)
        charges = Counter(account.charged for account in accounts if account is not None and account.charged)
        return ledger.holdings.sizes[device] + charges


def subset_sums(sizes: Mapping[int, int]) -> list[int] | None:
    """Return the sums of all subsets of `sizes`, in order; None if they are too many.

    Equal sizes are taken 1, 2, 4 ... at a time, and rare sizes first: those make the sums too many soonest.
    """
    if len(sizes) > _MOST_SIZES:
        return None
    sums = {0}
    for size, count in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        for times in _binary_parts(count):
            sums |= {size * times + other for other in sums}
            if len(sums) > _MOST_SUMS:
                return None
    return sorted(sums)


def _binary_parts(count: int) -> Iterator[int]:
    """Yield numbers whose subsets add up to each number from 0 to `count`."""
    part = 1
    while count:
        yield min(part, count)
        count -= min(part, count)
        part *= 2
