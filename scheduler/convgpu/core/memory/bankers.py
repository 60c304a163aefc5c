"""The Banker's algorithm: is there an order in which every container can get its whole limit and end?

E. W. Dijkstra, EWD 623 (1977), with limits as claims and grants as allocations, for all devices jointly. The names
`need` and `work` are those of the textbooks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final

Sizes = tuple[tuple[str, int], ...]

_PASSES: Final = 4  # over all claims; mostly enough, and with claims that were chosen to hurt too few


@dataclass(frozen=True)
class Claim:
    """What one container was granted and may still ask for, as (device, bytes), without devices of no bytes."""

    granted: Sizes
    need: Sizes

    @cached_property
    def total_need(self) -> int:
        """Bytes that it may still ask for, of all devices."""
        return sum(size for _, size in self.need)

    @property
    def devices(self) -> frozenset[str]:
        """The devices that it was granted, or may still ask for."""
        return frozenset(device for sizes in (self.granted, self.need) for device, _ in sizes)

    def fits(self, free: Mapping[str, int]) -> bool:
        """Return whether `free` holds all that it may still ask for."""
        return all(size <= free[device] for device, size in self.need)

    def shortage(self, free: Mapping[str, int]) -> int:
        """Return the bytes of all devices by which its need exceeds `free`."""
        return sum(max(size - free[device], 0) for device, size in self.need)

    def with_need(self, device: str, size: int) -> "Claim":
        """Return the claim as it would be if the container might still ask for `size` bytes of the device."""
        return Claim(self.granted, _positive(dict(self.need) | {device: size}))


def _positive(sizes: Mapping[str, int]) -> Sizes:
    return tuple((device, size) for device, size in sizes.items() if size > 0)


def least_need_first(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims in the order in which to try them.

    With one device a single pass in this order decides; several may need as many passes as there are claims.
    """
    return sorted(claims, key=attrgetter("total_need"))


def finish_feasible(work: dict[str, int], claims: Sequence[Claim]) -> list[Claim]:
    """Finish the claims that fit, one after the other, each returning its grants to `work`; return the stuck ones."""
    pending = claims
    for _ in range(_PASSES):
        stuck = []
        for claim in pending:
            for device, size in claim.need:  # as `fits`, inlined: this loop takes most of the time
                if size > work[device]:
                    stuck.append(claim)
                    break
            else:
                for device, size in claim.granted:
                    work[device] += size
        if len(stuck) == len(pending):
            return stuck
        pending = stuck
    return _finish_by_need(work, pending)


def _finish_by_need(work: dict[str, int], claims: Sequence[Claim]) -> list[Claim]:
    """As `finish_feasible`, in a time that no choice of claims makes worse: each need is looked at once."""
    lacking = [len(claim.need) for claim in claims]
    by_need: dict[str, list[tuple[int, int]]] = {device: [] for device in work}
    for number, claim in enumerate(claims):
        for device, size in claim.need:
            by_need[device].append((size, number))
    for needs in by_need.values():
        needs.sort(reverse=True)
    changed = list(work)
    while changed:
        device = changed.pop()
        needs = by_need[device]
        while needs and needs[-1][0] <= work[device]:
            number = needs.pop()[1]
            lacking[number] -= 1
            if not lacking[number]:
                for other, size in claims[number].granted:
                    work[other] += size
                    changed.append(other)
    return [claim for claim, left in zip(claims, lacking, strict=True) if left]


def is_safe(free: Mapping[str, int], claims: Sequence[Claim]) -> bool:
    """Return whether every holder can end.

    Containers without grants need not be among the claims: they can always come last, because no need exceeds the
    device.
    """
    return not finish_feasible(dict(free), claims)


def can_finish(claim: Claim, free: Mapping[str, int], others: Sequence[Claim]) -> bool:
    """Return whether one claim can finish, if need be after others.

    That suffices when a safe state granted it something: once it has finished, everything is as it was before.
    """
    work = dict(free)
    finish_feasible(work, others)
    return claim.fits(work)


def deficit(free: Mapping[str, int], claims: Sequence[Claim], taken: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes per device that would make the state safe if they were there; all 0 when it is safe.

    Whenever every claim is stuck, the one with the least shortage is lent the shortage, out of the bytes that were
    `taken` from the devices if possible: then the state is safe once these come back. (If the state was safe before
    they were taken, it is possible: of the stuck claims, the first of the previous order fits with what was taken.)
    """
    work = dict(free)
    left = dict(taken)
    stuck = finish_feasible(work, claims)
    while stuck:
        lendable = [claim for claim in stuck if all(size - work[device] <= left[device] for device, size in claim.need)]
        nearest = min(lendable or stuck, key=lambda claim: claim.shortage(work))
        for device, size in nearest.need:
            lent = max(size - work[device], 0)
            left[device] -= lent
            work[device] += lent
        stuck = finish_feasible(work, stuck)
    return {device: size - left[device] for device, size in taken.items()}
