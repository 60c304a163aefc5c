"""Backfill: newcomers that provably cannot delay the overdue allocations behind which they are held back.

The proof is by claims: the newcomer counts as if it took its whole limits and never ended (docs/policies.md, Backfill).
After R. Lifka, The ANL/IBM SP Scheduling System (1995), with limits and ends in place of run times.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from convgpu.core.allocation.admission import joint_containers, required, waits_for_holders
from convgpu.core.allocation.hold_back import HoldBack
from convgpu.core.allocation.turns import is_overdue
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation

_MOST_SUMS: Final = 1024  # of what holders may release; with more of them nothing is proved


class Backfill:
    """What may go on behind overdue allocations, in the present state.

    Args:
        state: of the machine; must not change while this is in use.
        held_back: the overdue allocations behind which newcomers are held back.
        now: seconds, on the clock of the events.
    """

    def __init__(self, state: State, held_back: HoldBack, now: float) -> None:
        self._state = state
        self._now = now
        self._ledger = state.ledger
        self._held_back = held_back
        self._sums: dict[str, list[int] | None] = {}

    def allows(self, waiting: WaitingAllocation) -> bool:
        """Return whether an allocation is not held back, or cannot delay any of those before it."""
        return not self.passes(waiting) or self._cannot_delay(waiting)

    def passes(self, waiting: WaitingAllocation) -> bool:
        """Return whether an allocation is held back, so that it would go past overdue ones."""
        return self._held_back.find(self._state, waiting) is not None

    def _cannot_delay(self, waiting: WaitingAllocation) -> bool:
        names = joint_containers(self._state, waiting.container)
        claim = self._need(names)
        if any(size > self._ledger.free[device] for device, size in claim.items()):
            return False
        before = list(self._before(waiting, claim))
        if any(self._takes_what_lacks(claim, other) for other in before):
            return False
        others = {tuple(joint_containers(self._state, other.container)): None for other in before}
        return self._ledger.can_all_end_beside(names, others)

    def _need(self, names: Iterable[str]) -> Counter[str]:
        """Return the bytes by device that containers may still be granted together."""
        sizes: Counter[str] = Counter()
        for name in names:
            sizes.update({device: self._ledger.need(name, device) for device in self._ledger.accounts[name]})
        return sizes

    def _before(self, waiting: WaitingAllocation, claim: Mapping[str, int]) -> Iterator[WaitingAllocation]:
        """Yield the overdue allocations of an earlier turn whose containers share a device with the newcomer."""
        state, own = self._state, claim.keys()
        for device in state.settling:
            for pending in state.queue.by_turn(device):
                other = pending.view
                if other.turn >= waiting.turn or not is_overdue(state, other, self._now):
                    break
                is_shared = any(device in own for device in self._devices(other))
                if is_shared and device not in state.drained and waits_for_holders(state, pending):
                    yield other

    def _devices(self, waiting: WaitingAllocation) -> Iterator[str]:
        for name in joint_containers(self._state, waiting.container):
            yield from self._ledger.accounts[name]

    def _takes_what_lacks(self, claim: Mapping[str, int], other: WaitingAllocation) -> bool:
        """Return whether holders may end so that `other` gets what it lacks of a device without the newcomer only."""
        needs = self._need(joint_containers(self._state, other.container))
        least = dict(needs) | dict(required(self._state, other))
        for device, own in claim.items():
            need, free = needs.get(device, 0), self._ledger.free[device]
            if own and need and self._may_release(device, least[device] - free, need + own - free):
                return True
        return False

    def _may_release(self, device: str, least: int, below: int) -> bool:
        """Return whether some holders together hold at least `least` bytes of the device, and less than `below`."""
        if device not in self._sums:
            self._sums[device] = subset_sums(self._holdings(device))
        sums = self._sums[device]
        if sums is None:
            return True
        place = bisect_left(sums, least)
        return place < len(sums) and sums[place] < below

    def _holdings(self, device: str) -> Iterator[int]:
        for name in self._ledger.holders:
            account = self._ledger.accounts[name].get(device)
            if account is not None:
                yield account.grant
                yield account.charged


def subset_sums(sizes: Iterable[int]) -> list[int] | None:
    """Return the sums of all subsets of `sizes`, in order; None if they are too many.

    Equal sizes are taken 1, 2, 4 ... at a time, and rare sizes first: those make the sums too many soonest.
    """
    sums = {0}
    for size, count in sorted(Counter(sizes).items(), key=lambda item: (item[1], item[0])):
        for times in _binary_parts(count) if size else ():
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
