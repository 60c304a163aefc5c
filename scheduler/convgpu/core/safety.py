"""The Banker's algorithm: is there an order in which everybody can get the whole limit and end?

E. W. Dijkstra, EWD 623 (1977); over limits as claims and grants as allocations, for all devices jointly.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What one container holds and may still ask for, in bytes per device."""

    held: Mapping[str, int]
    missing: Mapping[str, int]

    def fits(self, free: Mapping[str, int]) -> bool:
        """Could it get all it may still ask for out of `free`?"""
        return all(size == 0 or size <= free[device] for device, size in self.missing.items())


def is_safe(free: Mapping[str, int], holders: Iterable[Claim]) -> bool:
    """Say whether every holder can end, one after the other, giving back what it holds.

    Containers that hold nothing need not be given: they can always come last, because no limit is above the
    capacity of its device.

    With one device a single pass over the claims in the order of what they miss decides; several devices may
    need as many passes as there are holders.
    """
    work = dict(free)
    pending = sorted(holders, key=lambda claim: sum(claim.missing.values()))
    while pending:
        stuck = []
        for claim in pending:
            if claim.fits(work):
                for device, size in claim.held.items():
                    work[device] += size
            else:
                stuck.append(claim)
        if len(stuck) == len(pending):
            return False
        pending = stuck
    return True
