"""What a walk over the holders (margins.py) excludes still, after memory was granted or returned."""

from bisect import bisect_left
from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import Final

from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.claim_table import ClaimTable

_BATCH: Final = 16  # holders that end at once


class UpperBound:
    """Follows each change of a claim, and bounds what is free when no further holder can end.

    That the holders end which ended in the walk is assumed from now on; what they return later was counted then. The
    others end here as soon as their needs fit, and what fitted once is taken to fit for good. Both make it a bound: it
    is never less than A(s) of margins.py, and mostly little more, because few containers change between two walks.

    Args:
        device: the device `d` of the walk.
        table: the claims of all holders.
        work: bytes per device that are free when those have ended that did in the walk, none of the device missing.
        lacking: of all other holders, on how many devices but `d` their needs do not fit into `work`.
        ready: heap of those of them that lack none, by need on `d`.

    Attributes:
        ended: the holders that ended since.
    """

    def __init__(
        self,
        device: str,
        table: ClaimTable,
        work: dict[str, int],
        lacking: dict[str, int],
        ready: list[tuple[int, str]],
    ) -> None:
        self.ended: dict[str, None] = {}
        self._device = device
        self._table = table
        self._work = work
        self._lacking = lacking
        self._passed = {other: size for other, size in work.items() if other != device}  # needs up to these fit
        self._ready = ready  # outdated entries stay until they are the first

    def follow(self, changed: Mapping[str, Claim | None]) -> None:
        """Regard that claims have changed to those in `table`; `changed`: what they were, None: of no holder."""
        grown: dict[str, None] = {}
        for container, before in changed.items():
            after = self._table.claims.get(container)
            if before is after or (before is not None and container not in self._lacking):
                continue
            if before is not None:
                grown |= self._add(before.granted, 1)
                del self._lacking[container]
            if after is not None:
                grown |= self._add(after.granted, -1)
                self._place(container, after.need)
        for device in grown:
            self._pass_fitting(device)

    def excludes(self, need: Sizes, size: int) -> bool:
        """Return whether a need cannot fit while `size` bytes of the device are missing, whoever ends.

        No more holders end than it takes for the need to fit.
        """
        work = self._work
        lacking = [each for each in need if each[1] > work.get(each[0], inf)]
        while lacking:
            if not self._end_batch(size):
                return True
            lacking = [each for each in lacking if each[1] > work[each[0]]]
        return False

    def _end_batch(self, size: int) -> bool:
        """End some of the holders that can; return whether there were any."""
        ready, needs, claims = self._ready, self._table.needs[self._device], self._table.claims
        most = max(self._work[self._device] - size, 0)
        grown: dict[str, None] = {}
        left = _BATCH
        while ready and left:
            need, container = ready[0]
            is_outdated = self._lacking.get(container) != 0 or needs.get(container, 0) != need
            if not is_outdated and need > most:
                break
            heappop(ready)
            if not is_outdated:
                del self._lacking[container]
                self.ended[container] = None
                grown |= self._add(claims[container].granted, 1)
                left -= 1
        for device in grown:
            self._pass_fitting(device)
        return bool(grown)

    def _add(self, granted: Sizes, sign: int) -> dict[str, None]:
        """Add grants to what is free; return their devices."""
        for device, size in granted:
            if device in self._work:
                self._work[device] += sign * size
        return {device: None for device, _ in granted}

    def _place(self, container: str, need: Sizes) -> None:
        own = left = 0
        for device, size in need:
            if device == self._device:
                own = size
            elif size > self._passed.get(device, inf):
                left += 1
        self._lacking[container] = left
        if not left:
            heappush(self._ready, (own, container))

    def _pass_fitting(self, device: str) -> None:
        """Pass the holders whose need on another device fits now."""
        passed = self._passed.get(device)
        if passed is None or self._work[device] <= passed:
            return
        work = self._passed[device] = self._work[device]
        ordered, needs, lacking = self._table.by_need[device], self._table.needs[self._device], self._lacking
        start = bisect_left(ordered, (passed + 1,))
        for _, container in ordered[start : bisect_left(ordered, (work + 1,), start)]:
            left = lacking.get(container)
            if left:
                lacking[container] = left - 1
                if left == 1:
                    heappush(self._ready, (needs.get(container, 0), container))
