"""Policy `recent-use`: the container that was paused last."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from convgpu.policies.memory.base import WaitingAllocation


class RecentUse:
    """Serves the container whose youngest allocation was paused last, and within it the oldest allocation first.

    The container that ran most recently continues first; what it overtakes for long becomes overdue.
    """

    name: ClassVar[str] = "recent-use"

    def rank(self, waiting: Sequence[WaitingAllocation], free: Mapping[str, int]) -> Sequence[WaitingAllocation]:  # noqa: ARG002
        """Order by youngest allocation of the container, last first, then by age."""
        youngest: dict[str, int] = {}
        for w in waiting:
            youngest[w.container] = max(w.sequence, youngest.get(w.container, 0))
        return sorted(waiting, key=lambda w: (-youngest[w.container], w.sequence))
