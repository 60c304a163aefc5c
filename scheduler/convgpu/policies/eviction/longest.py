"""Eviction policy `longest`: the container that has been of no use for the longest time."""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.eviction.base import Victim


class Longest:
    """Moves what has waited, been idle or run for the longest time, as caches do (least recently used)."""

    name: ClassVar[str] = "longest"

    def rank(self, victims: Sequence[Victim], lacking: int) -> Sequence[Victim]:  # noqa: ARG002
        """Order by the time since when the container has been of no use, then by arrival, last first."""
        return sorted(victims, key=lambda v: (v.since, -v.container_order))
