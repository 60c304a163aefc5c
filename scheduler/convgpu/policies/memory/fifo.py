"""Policy `fifo`: the oldest container first."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from convgpu.policies.memory.base import Waiting


class Fifo:
    """Serves containers in the order in which they came, and within one container the oldest allocation first.

    A younger one that fits goes ahead of an older one that does not: memory that a waiter could use is never
    idle. How often an older one may be overtaken is bounded by the machine, not here.
    """

    name: ClassVar[str] = "fifo"

    def rank(self, waiting: Sequence[Waiting], free: Mapping[str, int]) -> Sequence[Waiting]:  # noqa: ARG002
        """Oldest container, then oldest allocation."""
        return sorted(waiting, key=lambda one: (one.container_order, one.sequence))
