"""Placement policy `least-fragmentation`: the device where the limit makes the least memory useless for others.

After Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
USENIX ATC 2023, with limits as demands and the limits of the placed containers as the typical workload.
"""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.placement.base import Candidate


class LeastFragmentation:
    """Chooses the device where fragmentation grows least.

    Unpromised memory is fragmented for a limit that it cannot hold. The fragmentation of a device is its unpromised
    memory, times the share of limits that it cannot hold.
    """

    name: ClassVar[str] = "least-fragmentation"

    def rank(self, candidates: Sequence[Candidate], limits: Sequence[int]) -> Sequence[Candidate]:
        """Order those that hold the limit by growth, then the others by the share that would be promised."""

        def growth(candidate: Candidate) -> tuple[bool, float, float, int]:
            left = candidate.unpromised - candidate.limit
            if left < 0:
                return True, 0.0, candidate.load, candidate.position
            typical = limits or (candidate.limit,)
            change = _fragmentation(left, typical) - _fragmentation(candidate.unpromised, typical)
            return False, change, candidate.load, candidate.position

        return sorted(candidates, key=growth)


def _fragmentation(unpromised: int, limits: Sequence[int]) -> float:
    return unpromised * sum(limit > unpromised for limit in limits) / len(limits)
