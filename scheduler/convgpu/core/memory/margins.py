"""How much of one device could be granted so that each holder can still end: one walk answers for all who wait.

Theorem. Let the holders end one after the other while `s` bytes of device `d` are missing, and let A(s) be what is
free when no more can, those `s` bytes included. A grant of `s` bytes of `d` to a container is safe if and only if the
container's need before the grant fits into A(s). (If the container itself ended on the way, its need did fit; if not,
the others alone led to A(s). The grant lowers its need and what is free by the same `s`.)

A(s) falls in steps as `s` grows. The walk ends holders in the order of their *margins*, the most bytes that may be
missing when they end, largest first: of those that fit on all other devices always the one with the least need on `d`.
"""

from bisect import bisect_left
from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import Final

from convgpu.core.memory.bankers import Sizes
from convgpu.core.memory.claim_table import ClaimTable

_BATCH: Final = 32  # holders that end at once, if the margin is the same


class Margins:
    """The walk for one device, as far as a question needed it.

    Once anything has been granted or returned it goes no further, and what it found is an upper bound:
    - a grant makes no A(s) larger;
    - what a holder returns makes A(s) larger for those `s` only that exceed its margin: for them A(margin) bounds it.

    Args:
        device: the device `d`.
        free: bytes per device that are free.
        table: the claims of all holders.

    Attributes:
        devices: those that the walk regards.
        is_exact: nothing has changed since it began.
        refused: by container, the size for which it was last found unsafe; valid up to `ceiling`.
        ceiling: sizes above it are judged as if they were this.
    """

    def __init__(self, device: str, free: Mapping[str, int], table: ClaimTable) -> None:
        self.device = device
        self.devices = table.connected(device)
        self.is_exact = True
        self.refused: dict[str, float] = {}
        self.ceiling: float = inf
        self._table = table
        self._own_needs = table.needs[device]
        self._work = {other: free[other] + table.satisfied[other] for other in self.devices}
        self._places = {other: 0 for other in self.devices if other != device}  # in the order of needs
        self._lacking = table.lacking[device].copy()
        # What was free when so many batches of holders had ended, by device, and the least margin of so many.
        self._gains: dict[str, tuple[list[int], list[int]]] = {o: ([work], [0]) for o, work in self._work.items()}
        self._least: list[float] = [inf]
        self._margins: dict[str, float] = {}  # of the holders that ended, in this order
        self._ready = table.sole[device].copy()  # heap of those that fit on all other devices, by need on this one
        for other in self._places:
            self._pass_fitting(other)

    # -- questions ---------------------------------------------------------------------------------------

    def is_refused(self, container: str, size: int) -> bool:
        """Return whether a grant of `size` bytes was found unsafe and nothing has changed that."""
        refused = self.refused.get(container)
        return refused is not None and refused <= size and refused <= self.ceiling

    def judge(self, container: str, need: Sizes, size: int) -> bool | None:
        """Return whether a grant of `size` bytes is safe, None when only a new walk could tell.

        `need`: what the container may still ask for; of other devices than the walk regards it says nothing.
        """
        asked = min(size, self.ceiling)
        fits = self._fits(need, asked)
        if fits is False:
            self.refused[container] = asked
        return fits

    def _fits(self, need: Sizes, size: float) -> bool | None:
        """Return whether the need fits into A(size), as far as the walk regards its devices."""
        ended = 0
        for device, lacking in need:
            if device not in self.devices:
                continue
            gains, numbers = self._gains[device]
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
        """Return whether a need fits once holders have ended in the order of this walk, whatever has changed since.

        Any order in which they can end proves a grant safe, so True is exact and False says nothing. It costs no more
        than the holders that ended.

        Args:
            need: what the container may still ask for, of all devices.
            size: bytes of the device that are missing.
            free: bytes per device that are free now.
        """
        claims = self._table.claims
        work = {device: there + self._table.satisfied[device] for device, there in free.items()}
        work[self.device] -= size
        for container in self._margins:
            claim = claims.get(container)
            if claim is None or not claim.need:
                continue
            for device, lacking in claim.need:
                if lacking > work[device]:
                    break
            else:
                for device, granted in claim.granted:
                    work[device] += granted
                if all(lacking <= work[device] for device, lacking in need):
                    return True
        return False

    # -- changes -----------------------------------------------------------------------------------------

    def record_return(self, container: str) -> None:
        """Record that a container got back less than it was granted: something is free that was not."""
        if container in self._margins:
            self.ceiling = min(self.ceiling, self._margins[container])
        elif container in self._lacking:
            self.ceiling = min(self.ceiling, self._next_margin())

    # -- the walk ----------------------------------------------------------------------------------------

    def _next_margin(self) -> float:
        """Return the margin of the next holder that can end; below all sizes when none can."""
        if not self._ready:
            return -inf
        need = self._ready[0][0]
        return min(self._least[-1], self._work[self.device] - need if need else inf)

    def _end_batch(self) -> None:
        """End the next holder, and others with the same margin."""
        margin, work, ready, claims = self._next_margin(), self._work, self._ready, self._table.claims
        most = work[self.device] - margin if margin < inf else 0
        batch: list[str] = []
        while ready and ready[0][0] <= most and len(batch) < _BATCH:
            batch.append(heappop(ready)[1])
        changed: dict[str, None] = {}
        for container in batch:
            for device, size in claims[container].granted:
                work[device] += size
                changed[device] = None
        self._margins.update(dict.fromkeys(batch, margin))
        self._least.append(margin)
        ended = len(self._least) - 1
        for device in changed:
            gains, numbers = self._gains[device]
            gains.append(work[device])
            numbers.append(ended)
            if device != self.device:
                self._pass_fitting(device)

    def _pass_fitting(self, device: str) -> None:
        """Pass the holders whose need on another device fits now; those that fit on all of them are ready."""
        ordered, place = self._table.by_need[device], self._places[device]
        end = self._places[device] = bisect_left(ordered, (self._work[device] + 1,), place)
        lacking, own = self._lacking, self._own_needs
        for _, container in ordered[place:end]:
            left = lacking[container] = lacking[container] - 1
            if not left:
                heappush(self._ready, (own.get(container, 0), container))
