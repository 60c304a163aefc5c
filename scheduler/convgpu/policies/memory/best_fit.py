"""Policy `best-fit`: the allocation that fits the free memory most closely."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from convgpu.policies.memory.base import WaitingAllocation


class BestFit:
    """Serves the allocation that leaves the least of its device's free memory over; of equal ones the oldest."""

    name: ClassVar[str] = "best-fit"

    def rank(self, waiting: Sequence[WaitingAllocation], free: Mapping[str, int]) -> Sequence[WaitingAllocation]:
        """Order by least remainder, then by age."""
        return sorted(waiting, key=lambda w: (free[w.device] - w.size, w.sequence))
