"""Policy `fifo`: the oldest container first."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from convgpu.policies.memory.base import WaitingAllocation


class Fifo:
    """Serves containers in the order in which they arrived, and within a container the oldest allocation first.

    A younger allocation that fits goes before an older one that does not: memory that a waiting allocation could use
    is never idle (invariant 3). The machine bounds how often an allocation is overtaken, not the policy.
    """

    name: ClassVar[str] = "fifo"

    def rank(self, waiting: Sequence[WaitingAllocation], free: Mapping[str, int]) -> Sequence[WaitingAllocation]:  # noqa: ARG002
        """Order by age of the container, then of the allocation."""
        return sorted(waiting, key=lambda w: (w.container_order, w.sequence))
