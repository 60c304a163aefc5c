"""How much of one device could be granted so that each holder can still end: one walk answers for all who wait.

Theorem. Let the holders end one after the other while `s` bytes of device `d` are missing, and let A(s) be what is
free when no more can, those `s` bytes included. A grant of `s` bytes of `d` to a container is safe if and only if the
container's need before the grant fits into A(s). (If the container itself ended on the way, its need did fit; if not,
the others alone led to A(s). The grant lowers its need and what is free by the same `s`.)

A(s) falls in steps as `s` grows. The walk ends holders in the order of their *margins*, the most bytes that may be
missing when they end, largest first: of those that fit on all other devices always the one with the least need on `d`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.claim_table import SLOT_BITS, SLOT_MASK, ClaimTable, heap_key
from convgpu.core.memory.upper_bound import ABOVE_ALL, UpperBound

_PASSES: Final = 4  # over those that ended before
_STEP: Final = 64  # holders that end before it is looked whether the need fits
_BATCH: Final = 32  # holders that end at once, if the margin is the same


class Margins:
    """The walk for one device, as far as a question needed it.

    Once anything has been granted or returned it goes no further, and what it found is an upper bound:
    - a grant makes no A(s) larger;
    - what a holder returns that ended makes A(s) larger for those `s` only that exceed its margin: for them A(margin)
      bounds it;
    - what another holder returns leaves no A(s) as it was: then `UpperBound` alone says how far it has grown.

    Args:
        device: the device `d`.
        free: bytes per device that are free.
        table: the claims of all holders.

    Attributes:
        devices: those that the walk regards.
        is_exact: nothing has changed since it began.
        refused: by container, the size for which it was last found unsafe.
        ceiling: sizes above it are judged as if they were this.
    """

    def __init__(self, device: str, free: Mapping[str, int], table: ClaimTable) -> None:
        self.device = device
        self.devices = table.connected(device)
        self.is_exact = True
        self.refused: dict[str, int] = {}
        self.ceiling = ABOVE_ALL
        self._bound: UpperBound | None = None  # once a claim has changed
        # Slots and claims as they were when the walk, or the bound, regarded them.
        self._changed: dict[str, tuple[int, Claim | None]] = {}
        self._has_levels = True  # what the walk found bounds A(s) still
        self._table = table
        self._number = table.numbers[device]
        # By number of the device; of those that the walk does not regard `ABOVE_ALL`.
        self._work = [
            free[other] + table.satisfied[number] if other in self.devices else ABOVE_ALL
            for other, number in table.numbers.items()
        ]
        self._places = [0] * len(self._work)  # in the order of needs
        self._lacking = table.lacking[self._number].copy()  # of those that did not end; -1: of the others
        # What was free when so many batches of holders had ended, by device, and the least margin of so many.
        self._gains: list[tuple[list[int], list[int]]] = [([work], [0]) for work in self._work]
        self._least: list[int] = [ABOVE_ALL]
        self._margins: dict[str, int] = {}  # of the holders that ended, in this order
        self._ready = table.sole[self._number].copy()  # heap of those that fit on all other devices
        for other in self.devices:
            if other != device:
                self._pass_fitting(table.numbers[other])

    # -- questions ---------------------------------------------------------------------------------------

    def is_refused(self, container: str, size: int) -> bool:
        """Return whether a grant of `size` bytes was found unsafe and nothing has changed that."""
        refused = self.refused.get(container)
        return refused is not None and refused <= size

    def judge(self, container: str, need: Sizes, size: int) -> bool | None:
        """Return whether a grant of `size` bytes is safe, None when only a new walk could tell.

        `need`: what the container may still ask for; of other devices than the walk regards it says nothing.
        """
        asked = min(size, self.ceiling)
        fits = self._fits(need, asked) if self._has_levels else None
        if fits is None and self._current_bound().excludes(need, size):
            asked, fits = size, False
        if fits is False:
            self.refused[container] = asked
        return fits

    def _fits(self, need: Sizes, size: int) -> bool | None:
        """Return whether the need fits into A(size), as far as the walk regards its devices."""
        ended = 0
        for device, lacking in need:
            if device not in self.devices:
                continue
            gains, numbers = self._gains[self._table.numbers[device]]
            while gains[-1] < lacking:
                if self._next_margin() < size:
                    return False
                if not self.is_exact:
                    return None
                self._end_batch()
            ended = max(ended, numbers[bisect_left(gains, lacking)])
        if self._least[ended] < size:
            return False
        return True if self.is_exact else None

    def still_fits(self, need: Sizes, size: int, free: Mapping[str, int]) -> bool:
        """Return whether a need fits once those have ended that ended in this walk or in its bound, as far as they can.

        Any order in which holders can end proves a grant safe, so True is exact and False says nothing. It costs no
        more than the holders that ended.

        Args:
            need: what the container may still ask for, of all devices.
            size: bytes of the device that are missing.
            free: bytes per device that are free now.
        """
        table, lanes = self._table, self._table.lanes
        packed, guards, missing = table.packed, lanes.guards, size << lanes.shifts[self.device]
        work = lanes.pack_free(
            {device: there + table.satisfied[table.numbers[device]] for device, there in free.items()}
        )
        work -= missing
        asked = lanes.pack_need(need) - missing
        ended = self._margins | (self._bound.ended if self._bound is not None else {})
        pending = [packed[name] for name in ended if name in packed]
        for _ in range(_PASSES):
            stuck = []
            for first in range(0, len(pending), _STEP):
                for claim in pending[first : first + _STEP]:
                    if (work - claim[0]) & guards == guards:
                        work += claim[1] if claim[0] else 0  # without a need it is counted as satisfied
                    else:
                        stuck.append(claim)
                if (work - asked) & guards == guards:
                    return True
            if len(stuck) == len(pending):
                break
            pending = stuck
        return False

    # -- changes -----------------------------------------------------------------------------------------

    def record_return(self, container: str) -> None:
        """Record that a container returned memory: something is free that was not."""
        if container in self._margins:
            self.ceiling = min(self.ceiling, self._margins[container])
            self.refused = {name: size for name, size in self.refused.items() if size <= self.ceiling}
        elif self._may_end(container) or (self._bound is not None and container in self._bound.ended):
            self._has_levels = False
            self.refused.clear()

    def _may_end(self, container: str) -> bool:
        """Return whether a container is regarded and did not end in the walk, nor in the bound."""
        slot = self._table.slots.get(container)
        return slot is not None and slot < len(self._lacking) and self._lacking[slot] >= 0

    def record_change(self, container: str, slot: int, before: Claim | None) -> None:
        """Record that the claim of a container has changed, which had this slot; None: it held nothing before."""
        self._changed.setdefault(container, (slot, before))

    def _current_bound(self) -> UpperBound:
        """Return the bound, once it has followed all changes."""
        if self._bound is None:
            self._least.append(self._next_margin())
            self._bound = UpperBound(self._number, self._table, self._work, self._lacking, self._ready)
        self._bound.follow(self._changed)
        self._changed.clear()
        return self._bound

    # -- the walk ----------------------------------------------------------------------------------------

    def _next_margin(self) -> int:
        """Return the margin of the next holder that can end; below all sizes when none can."""
        if self._bound is not None:
            return self._least[-1]
        if not self._ready:
            return -ABOVE_ALL
        need = self._ready[0] >> SLOT_BITS
        return min(self._least[-1], self._work[self._number] - need if need else ABOVE_ALL)

    def _end_batch(self) -> None:
        """End the next holder, and others with the same margin."""
        margin, work, ready, lacking = self._next_margin(), self._work, self._ready, self._lacking
        most = heap_key(work[self._number] - margin + 1 if margin < ABOVE_ALL else 1, 0)
        granted, changed = self._table.granted, dict[int, None]()
        batch: list[int] = []
        while ready and ready[0] < most and len(batch) < _BATCH:
            batch.append(heappop(ready) & SLOT_MASK)
        for slot in batch:
            lacking[slot] = -1
            for number, size in granted[slot]:
                work[number] += size
                changed[number] = None
        names = self._table.names
        self._margins.update(dict.fromkeys([names[slot] for slot in batch], margin))
        self._least.append(margin)
        ended = len(self._least) - 1
        for number in changed:
            gains, numbers = self._gains[number]
            gains.append(work[number])
            numbers.append(ended)
            if number != self._number:
                self._pass_fitting(number)

    def _pass_fitting(self, number: int) -> None:
        """Pass the holders whose need on another device fits now; those that fit on all of them are ready."""
        sizes, place = self._table.sizes[number], self._places[number]
        end = self._places[number] = bisect_right(sizes, self._work[number], place)
        lacking, needs = self._lacking, self._table.needs[self._number]
        for slot in self._table.by_need[number][place:end]:
            left = lacking[slot] = lacking[slot] - 1
            if not left:
                heappush(self._ready, needs[slot] << SLOT_BITS | slot)
