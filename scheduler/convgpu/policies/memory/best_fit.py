"""Policy `best-fit`: the missing amount that fits the free memory most closely."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from convgpu.policies.memory.base import Waiting


class BestFit:
    """Serves the allocation that leaves the least of its device's free memory over; of equal ones the oldest."""

    name: ClassVar[str] = "best-fit"

    def rank(self, waiting: Sequence[Waiting], free: Mapping[str, int]) -> Sequence[Waiting]:
        """Least remainder first, then oldest allocation."""
        return sorted(waiting, key=lambda one: (free[one.device] - one.missing, one.sequence))
