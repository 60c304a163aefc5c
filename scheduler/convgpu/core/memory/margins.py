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

from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.claim_table import ClaimTable
from convgpu.core.memory.upper_bound import UpperBound

_PASSES: Final = 4  # over those that ended before
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
        self.refused: dict[str, float] = {}
        self.ceiling: float = inf
        self._bound: UpperBound | None = None  # once a claim has changed
        self._changed: dict[str, Claim | None] = {}  # claims as they were when the walk, or the bound, regarded them
        self._has_levels = True  # what the walk found bounds A(s) still
        self._table = table
        self._own_needs = table.needs[device]
        self._work = {other: free[other] + table.satisfied[other] for other in self.devices}
        self._places = {other: 0 for other in self.devices if other != device}  # in the order of needs
        self._lacking = table.lacking[device].copy()  # of those that did not end
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
        work = lanes.pack_free({device: there + table.satisfied[device] for device, there in free.items()}) - missing
        asked = lanes.pack_need(need) - missing
        ended = self._margins | (self._bound.ended if self._bound is not None else {})
        pending = [packed[name] for name in ended if name in packed]
        for _ in range(_PASSES):
            stuck = []
            for claim in pending:
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
        elif container in self._lacking or (self._bound is not None and container in self._bound.ended):
            self._has_levels = False
            self.refused.clear()

    def record_change(self, container: str, before: Claim | None) -> None:
        """Record that the claim of a container has changed; None: it held nothing before."""
        self._changed.setdefault(container, before)

    def _current_bound(self) -> UpperBound:
        """Return the bound, once it has followed all changes."""
        if self._bound is None:
            self._least.append(self._next_margin())
            self._bound = UpperBound(self.device, self._table, self._work, self._lacking, self._ready)
        self._bound.follow(self._changed)
        self._changed.clear()
        return self._bound

    # -- the walk ----------------------------------------------------------------------------------------

    def _next_margin(self) -> float:
        """Return the margin of the next holder that can end; below all sizes when none can."""
        if self._bound is not None:
            return self._least[-1]
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
            del self._lacking[batch[-1]]
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
