"""Policy `recent-use`: the container that was paused last."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from convgpu.policies.memory.base import Waiting


class RecentUse:
    """Serves the container whose youngest allocation was paused last, and within it the oldest allocation first.

    Who was running a moment ago goes on first; those that have waited long are overdue then.
    """

    name: ClassVar[str] = "recent-use"

    def rank(self, waiting: Sequence[Waiting], free: Mapping[str, int]) -> Sequence[Waiting]:  # noqa: ARG002
        """Container of the youngest allocation, then oldest allocation."""
        youngest: dict[str, int] = {}
        for one in waiting:
            youngest[one.container] = max(one.sequence, youngest.get(one.container, 0))
        return sorted(waiting, key=lambda one: (-youngest[one.container], one.sequence))
