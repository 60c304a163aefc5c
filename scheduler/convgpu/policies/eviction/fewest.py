"""Eviction policy `fewest`: as few containers as possible."""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.eviction.base import Victim


class Fewest:
    """Moves the smallest container that suffices by itself; where none does, the largest first."""

    name: ClassVar[str] = "fewest"

    def rank(self, victims: Sequence[Victim], lacking: int) -> Sequence[Victim]:
        """Order those that suffice by size, then the others by size, largest first."""
        return sorted(victims, key=lambda v: (v.size < lacking, v.size if v.size >= lacking else -v.size))
