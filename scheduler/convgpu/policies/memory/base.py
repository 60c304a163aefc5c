"""The interface of memory policies: the waiting allocations go in, their order comes out."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import msgspec


class WaitingAllocation(msgspec.Struct, frozen=True):
    """One paused allocation, as a policy sees it.

    Attributes:
        sequence: its place in the order in which allocations were requested; unique.
        container: its container.
        container_order: the container's place in the order in which containers arrived; smaller is older.
        device: UUID of the device that it waits for.
        request: number of the request, for the answer.
        size: bytes requested; its container has no idle grant for any of them.
        since: seconds, on the clock of the events.
        priority: of its container; the machine heeds it, not the policy.
        is_context: it is for a CUDA context, so that its process will need more.
        head_start: seconds by which its priority puts it forward among overdue allocations; negative: back.
    """

    sequence: int
    container: str
    container_order: int
    device: str
    request: int
    size: int
    since: float
    priority: int = 0
    head_start: float = 0.0
    is_context: bool = False

    @property
    def turn(self) -> tuple[float, int]:
        """Its place among overdue allocations: when it was paused, less its head start; of equal ones the oldest."""
        return self.since - self.head_start, self.sequence

    def aged(self, now: float) -> float:
        """Return the seconds that it counts as having waited: its wait and its head start."""
        return now - self.since + self.head_start


class Policy(Protocol):
    """Chooses which waiting allocation gets free memory.

    Pure: the same arguments give the same answer. The machine serves the first allocation of the answer whose grant
    leaves the state safe, then asks again. It passes only allocations of equal priority, and bounds by age how often
    an allocation is overtaken, whatever the policy answers.
    """

    name: ClassVar[str]

    def rank(self, waiting: Sequence[WaitingAllocation], free: Mapping[str, int]) -> Sequence[WaitingAllocation]:
        """Return `waiting` in the order in which to serve them, if there were room; `free`: bytes per device."""
        ...
