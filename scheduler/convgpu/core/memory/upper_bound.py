"""What a walk over the holders (margins.py) excludes still, after memory was granted or returned."""

from bisect import bisect_right
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.claim_table import SLOT_BITS, SLOT_MASK, ClaimTable, heap_key

ABOVE_ALL: Final = 1 << 100  # bytes: more than any size, or sum of sizes
_BATCH: Final = 16  # holders that end at once


class UpperBound:
    """Follows each change of a claim, and bounds what is free when no further holder can end.

    That the holders end which ended in the walk is assumed from now on; what they return later was counted then. The
    others end here as soon as their needs fit, and what fitted once is taken to fit for good. Both make it a bound: it
    is never less than A(s) of margins.py, and mostly little more, because few containers change between two walks.

    Args:
        device: number of the device `d` of the walk.
        table: the claims of all holders.
        work: bytes by number of the device that are free when those have ended that did in the walk, none of the device
            missing; `ABOVE_ALL` of those that the walk does not regard.
        lacking: by slot of all other holders, on how many devices but `d` their needs do not fit into `work`; -1: they
            have ended.
        ready: heap of those of them that lack none, by need on `d`.

    Attributes:
        ended: the holders that ended since.
    """

    def __init__(self, device: int, table: ClaimTable, work: list[int], lacking: list[int], ready: list[int]) -> None:
        self.ended: dict[str, None] = {}
        self._device = device
        self._table = table
        self._work = work
        self._lacking = lacking
        # Needs up to these fit; those of `d`, and of devices that the walk does not regard, are not asked for here.
        self._passed = [2 * ABOVE_ALL if size >= ABOVE_ALL else size for size in work]
        self._passed[device] = 2 * ABOVE_ALL
        self._ready = ready  # outdated entries stay until they are the first

    def follow(self, changed: Mapping[str, tuple[int, Claim | None]]) -> None:
        """Regard that claims have changed to those in `table`; `changed`: their slots and what they were, None: none.

        First all that was, then all that is: a slot may have become another's.
        """
        grown: dict[int, None] = {}
        table, lacking = self._table, self._lacking
        placed = []
        for container, (slot, before) in changed.items():
            if before is table.claims.get(container) or (before is not None and lacking[slot] < 0):
                continue
            placed.append(container)
            if before is not None:
                lacking[slot] = -1
                for device, size in before.granted:
                    self._work[table.numbers[device]] += size
                    grown[table.numbers[device]] = None
        lacking += [-1] * (len(table.names) - len(lacking))
        for container in placed:
            if container in table.claims:
                self._place(table.slots[container])
        for number in grown:
            self._pass_fitting(number)

    def excludes(self, need: Sizes, size: int) -> bool:
        """Return whether a need cannot fit while `size` bytes of the device are missing, whoever ends.

        No more holders end than it takes for the need to fit.
        """
        work, numbers = self._work, self._table.numbers
        lacking = [(numbers[device], asked) for device, asked in need if asked > work[numbers[device]]]
        while lacking:
            if not self._end_batch(size):
                return True
            lacking = [(number, asked) for number, asked in lacking if asked > work[number]]
        return False

    def _end_batch(self, size: int) -> bool:
        """End some of the holders that can; return whether there were any."""
        ready, lacking, work, table = self._ready, self._lacking, self._work, self._table
        needs, granted = table.needs[self._device], table.granted
        most = heap_key(max(work[self._device] - size, 0) + 1, 0)
        batch: list[int] = []
        while ready and len(batch) < _BATCH:
            key = ready[0]
            slot = key & SLOT_MASK
            if lacking[slot] or needs[slot] != key >> SLOT_BITS:
                heappop(ready)  # outdated
            elif key >= most:
                break
            else:
                heappop(ready)
                lacking[slot] = -1
                batch.append(slot)
        grown: dict[int, None] = {}
        for slot in batch:
            self.ended[table.names[slot]] = None
            for number, returned in granted[slot]:
                work[number] += returned
                grown[number] = None
        for number in grown:
            self._pass_fitting(number)
        return bool(batch)

    def _place(self, slot: int) -> None:
        """Regard a holder that was none, or that has changed."""
        for number, size in self._table.granted[slot]:
            self._work[number] -= size
        left = 0
        for number, size in self._table.asked[slot]:
            if size > self._passed[number]:
                left += 1
        self._lacking[slot] = left
        if not left:
            heappush(self._ready, heap_key(self._table.needs[self._device][slot], slot))

    def _pass_fitting(self, number: int) -> None:
        """Pass the holders whose need on another device fits now."""
        passed, work = self._passed[number], self._work[number]
        if work <= passed:
            return
        self._passed[number] = work
        sizes, needs, lacking = self._table.sizes[number], self._table.needs[self._device], self._lacking
        start = bisect_right(sizes, passed)
        for slot in self._table.by_need[number][start : bisect_right(sizes, work, start)]:
            left = lacking[slot]
            if left > 0:
                lacking[slot] = left - 1
                if left == 1:
                    heappush(self._ready, needs[slot] << SLOT_BITS | slot)
