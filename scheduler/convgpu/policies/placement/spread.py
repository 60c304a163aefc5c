"""Placement policy `spread`: the device with the fewest containers."""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.placement.base import Candidate


class Spread:
    """Chooses the device with the fewest containers, whatever their limits, so that each has the most of its time."""

    name: ClassVar[str] = "spread"

    def rank(self, candidates: Sequence[Candidate], limits: Sequence[int]) -> Sequence[Candidate]:  # noqa: ARG002
        """Order by number of containers, then by the share that would be promised, then by position."""
        return sorted(candidates, key=lambda c: (c.containers, c.load, c.position))
