"""Placement policy `least-promised`: the device with the least sum of limits, relative to its capacity."""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.placement.base import Candidate


class LeastPromised:
    """Chooses the device of which the least share would be promised with the container.

    Limits count, not what is held now: a container that has just started holds little and will hold more.
    """

    name: ClassVar[str] = "least-promised"

    def rank(self, candidates: Sequence[Candidate], limits: Sequence[int]) -> Sequence[Candidate]:  # noqa: ARG002
        """Order by the share that would be promised, then by position."""
        return sorted(candidates, key=lambda c: (c.load, c.position))
