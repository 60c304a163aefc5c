"""The Banker's algorithm: is there an order in which everybody can get all that is claimed, and end?

E. W. Dijkstra, EWD 623 (1977); over limits as claims and grants as allocations, for all devices jointly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Claim:
    """What one container holds and may still ask for: (device, bytes), without those of no bytes."""

    held: Sizes
    missing: Sizes

    @cached_property
    def total(self) -> int:
        """Bytes that it may still ask for, of all devices."""
        return sum(size for _, size in self.missing)

    def fits(self, free: Mapping[str, int]) -> bool:
        """Could it get all it may still ask for out of `free`?"""
        return all(size <= free[device] for device, size in self.missing)

    def shortage(self, free: Mapping[str, int]) -> int:
        """Bytes that `free` lacks for it, of all devices."""
        return sum(max(size - free[device], 0) for device, size in self.missing)


def ordered(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims in the order in which to try them: those that miss least first.

    With one device a single pass in this order decides; several may need as many passes as there are claims.
    """
    return sorted(claims, key=attrgetter("total"))


def end_those_that_can(work: dict[str, int], claims: Sequence[Claim]) -> list[Claim]:
    """Let the claims that fit end, one after the other, each giving back to `work` what it holds; return the rest."""
    pending = claims
    while True:
        stuck = []
        for claim in pending:
            for device, size in claim.missing:  # as `fits`, written out: this is where the time goes
                if size > work[device]:
                    stuck.append(claim)
                    break
            else:
                for device, size in claim.held:
                    work[device] += size
        if len(stuck) == len(pending):
            return stuck
        pending = stuck


def is_safe(free: Mapping[str, int], claims: Sequence[Claim]) -> bool:
    """Say whether every holder can end.

    Containers that hold nothing need not be given: they can always come last, because no claim is above what the
    device has.
    """
    return not end_those_that_can(dict(free), claims)


def can_end(claim: Claim, free: Mapping[str, int], others: Sequence[Claim]) -> bool:
    """Say whether one can end, if need be after others.

    That is all there is to see when a safe state gave it something: from then on everything is as it was before.
    """
    work = dict(free)
    end_those_that_can(work, others)
    return claim.fits(work)


def deficit(free: Mapping[str, int], claims: Sequence[Claim], taken: Mapping[str, int]) -> dict[str, int]:
    """Return bytes per device that would make the state safe, if they were there: none when it is safe.

    Whenever nobody can end, the one who lacks least is lent that; out of what was `taken` from the devices if
    possible: then the state is safe when that comes back. (If the state was safe before it was taken, it is possible:
    of those who cannot end, the first of the former order could with what was taken.)
    """
    work = dict(free)
    left = dict(taken)
    stuck = end_those_that_can(work, claims)
    while stuck:
        covered = [
            claim for claim in stuck if all(size - work[device] <= left[device] for device, size in claim.missing)
        ]
        nearest = min(covered or stuck, key=lambda claim: claim.shortage(work))
        for device, size in nearest.missing:
            lack = max(size - work[device], 0)
            left[device] -= lack
            work[device] += lack
        stuck = end_those_that_can(work, stuck)
    return {device: size - left[device] for device, size in taken.items()}
