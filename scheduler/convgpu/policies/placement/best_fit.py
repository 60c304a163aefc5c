"""Placement policy `best-fit`: the device whose unpromised memory the limit fills most closely."""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.placement.base import Candidate


class BestFit:
    """Chooses the device that has the least unpromised memory left after the limit, so that whole devices stay empty.

    Where the limit fits nowhere any more, the device with the least share promised.
    """

    name: ClassVar[str] = "best-fit"

    def rank(self, candidates: Sequence[Candidate], limits: Sequence[int]) -> Sequence[Candidate]:  # noqa: ARG002
        """Order those that hold the limit by what is left, then the others by the share that would be promised."""
        return sorted(candidates, key=_rank)


def _rank(candidate: Candidate) -> tuple[bool, float, int]:
    left = candidate.unpromised - candidate.limit
    return left < 0, left if left >= 0 else candidate.load, candidate.position
