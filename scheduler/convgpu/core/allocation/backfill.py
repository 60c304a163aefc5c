"""Backfill: newcomers that provably cannot delay the overdue allocations behind which they are held back.

The proof is by claims: the newcomer counts as if it took its whole limits and never ended (docs/policies.md, Backfill).
After R. Lifka, The ANL/IBM SP Scheduling System (1995), with limits and ends in place of run times.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from math import inf
from operator import itemgetter

from convgpu.core.allocation.admission import joint_containers, required, waits_for_holders
from convgpu.core.allocation.hold_back import HoldBack
from convgpu.core.allocation.turns import is_overdue
from convgpu.core.memory.ledger import CURRENT, Ledger, Needs
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.memory.release_sums import ReleaseSums
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation

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

    def __init__(self, state: State, held_back: HoldBack, sums: ReleaseSums, devices: Iterable[str]) -> None:
        self._state = state
        self._devices = devices
        self._ledger = state.ledger
        self._held_back = held_back
        self._sums = sums
        self._room: Needs | None = None
        self._claims: dict[int, OverdueClaim] = {}  # by sequence of the overdue allocation, as far as computed
        # Of the overdue allocations regarded so far: the last turn, and by device the most that a newcomer may claim
        # that goes past them, with the turn from which on it is no more.
        self._overdue = self._by_turn()
        self._following: PendingAllocation | None = None  # the first that is not regarded, if it is known
        self._last_turn: Turn = (-inf, 0)
        self._most: dict[Key, list[tuple[Turn, float]]] = {}

    def passes(self, waiting: WaitingAllocation) -> bool:
        """Return whether an allocation is held back, so that it would go past overdue ones."""
        return self._held_back.find(self._state, waiting) is not None

    def leaves_enough(self, waiting: WaitingAllocation) -> bool:
        """Return whether the whole limits are free with which one comes, and no overdue allocation would miss them."""
        claim = self._ledger.needs(joint_containers(self._state, waiting.container))
        free = self._ledger.free
        if any(size > free[device] for (scenario, device), size in claim.items() if scenario == CURRENT):
            return False
        return self._leaves_enough(waiting.turn, claim)

    def can_all_end_beside(self, waiting: WaitingAllocation) -> bool:
        """Return whether all holders can end even if the containers never do that are granted memory with one."""
        return self._ledger.can_all_end_beside(joint_containers(self._state, waiting.container))

    def may_pass(self, overdue: WaitingAllocation, device: str, size: int) -> bool:
        """Return whether a newcomer may go past one overdue allocation that claims so many bytes of a device."""
        beside, key = self._overdue_claim(overdue), (CURRENT, device)
        return key not in beside.keys or self._is_left(beside, key, size)

    # -- the overdue allocations before a newcomer -------------------------------------------------------

    def _leaves_enough(self, turn: Turn, claim: Needs) -> bool:
        """Return whether none of the overdue allocations of an earlier turn would miss what a newcomer claims.

        They are regarded in the order of their turns, once for all newcomers, and only until one of them refuses.
        """
        for key, size in claim.items():
            minima = self._most.get(key)
            place = bisect_left(minima, (turn,)) if minima else 0
            if minima and place and size > minima[place - 1][1]:
                return False
        while self._last_turn < turn:
            overdue = self._following = self._following or next(self._overdue, None)
            if overdue is None:
                return True
            beside = self._overdue_claim(overdue.view)
            if overdue.view.turn < turn:
                sizes = ((key, size) for key, size in claim.items() if key in beside.keys)
                if not all(self._is_left(beside, key, size) for key, size in sizes):
                    return False
            self._regard(overdue)
            self._following = None
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

    def _regard(self, overdue: PendingAllocation) -> None:
        """Regard a further overdue allocation for all newcomers that follow."""
        claim = self._overdue_claim(overdue.view)
        turn = self._last_turn = overdue.view.turn
        for key in claim.keys:
            minima = self._most.setdefault(key, [])
            if minima and minima[-1][1] <= 0 and claim.fits_at_last:
                continue  # nothing is left already, and less than nothing only where it does not fit
            size = self._most_beside(claim, key)
            if not minima or size < minima[-1][1]:
                minima.append((turn, size))

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
            fits = all(size <= room[key] for key, size in lacking.items())
            keys = needs if fits else [(n, d) for n, _ in room for name in names for d in ledger.accounts[name]]
            claim = OverdueClaim(keys, needs, lacking, required(self._state, overdue), fits_at_last=fits)
            self._claims[overdue.sequence] = claim
        return claim

    def _is_left(self, other: "OverdueClaim", key: Key, size: int) -> bool:
        """Return whether a newcomer may claim so many bytes of a device of an overdue allocation's containers.

        A bound of what holders may release refuses most, at a small part of the costs of the least that they may.
        """
        if key not in other.most and size > self._beside(other, key, self._sums.release_bound):
            return False
        return size <= self._most_beside(other, key)

    def _most_beside(self, other: "OverdueClaim", key: Key) -> float:
        """Return the most that a newcomer may claim of a device of an overdue allocation's containers beside that."""
        most = other.most.get(key)
        if most is None:
            most = other.most[key] = self._beside(other, key, self._sums.least_release)
        return most

    def _beside(self, other: "OverdueClaim", key: Key, release: Callable[[str, int], float]) -> float:
        """Return what of a device is left for a newcomer if holders release so many bytes when an end serves `other`.

        Two rules: the holders may never end so that `other` gets what it lacks without the newcomer only; and when all
        of them have ended, the whole limits of its containers are free. Less than 0: nobody may go past it.
        """
        if not other.fits_at_last or self._room is None:
            return -1
        lacking, need = other.lacking.get(key), other.needs[key]
        most = self._room[key] - lacking if lacking else inf
        scenario, device = key
        if scenario == CURRENT:
            free = self._ledger.free[device]
            most = min(most, max(release(device, other.sizes.get(device, need) - free) - need + free, 0))
        return most


@dataclass(frozen=True, slots=True)
class OverdueClaim:
    """What an overdue allocation, and the containers that are granted memory with it, may keep newcomers from.

    Attributes:
        keys: what a newcomer that goes past it has to leave.
        needs: what its containers may still be granted.
        lacking: the same of those of them that hold nothing.
        sizes: bytes by device that it waits for.
        fits_at_last: all that is lacking will be free when all holders have ended.
        most: by device, the most that a newcomer may claim beside it, as far as computed.
    """

    keys: Collection[Key]
    needs: Needs
    lacking: Needs
    sizes: Mapping[str, int]
    fits_at_last: bool
    most: dict[Key, float] = field(default_factory=dict)


class Grants:
    """What holders of each device were granted, and their charges: all of which they release when they end."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.changes = ledger.holdings.changes

    def sizes(self, device: str) -> Mapping[int, int]:
        """Return how many holdings of each size above 0 there are."""
        ledger = self._ledger
        if ledger.usable[device] == ledger.capacity[device] + ledger.pool[device] + ledger.beyond[device]:
            return ledger.holdings.sizes[device]  # nothing is charged
        accounts = (ledger.accounts[name].get(device) for name in ledger.holders)
        charges = Counter(account.charged for account in accounts if account is not None and account.charged)
        return ledger.holdings.sizes[device] + charges

    def either(self, device: str) -> Collection[tuple[int, int]]:  # noqa: ARG002
        """Return nothing: nobody releases a part of it by a step of its own."""
        return ()
