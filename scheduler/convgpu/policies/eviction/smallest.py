"""Eviction policy `smallest`: the container with the least memory that may leave."""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.eviction.base import Victim


class Smallest:
    """Moves small containers first: they come back soonest, because little room is enough for them."""

    name: ClassVar[str] = "smallest"

    def rank(self, victims: Sequence[Victim], lacking: int) -> Sequence[Victim]:  # noqa: ARG002
        """Order by size, then by arrival, last first."""
        return sorted(victims, key=lambda v: (v.size, -v.container_order))
