"""What a policy sees and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Waiting:
    """One paused allocation, as a policy sees it.

    Attributes:
        sequence: order in which the allocations were asked for; unique.
        container: its container.
        container_order: order in which the containers came; smaller is older.
        device: UUID of the device it waits for.
        request: number of the request.
        size: bytes asked for.
        missing: bytes that the container's grant lacks for it.
        since: seconds, on the clock of the events.
        priority: of its container; the machine heeds it, not the policy.
    """

    sequence: int
    container: str
    container_order: int
    device: str
    request: int
    size: int
    missing: int
    since: float
    priority: int = 0


class Policy(Protocol):
    """Chooses which waiting allocation gets free memory.

    Pure: the same snapshot gives the same answer. The machine serves the first of the answer whose grant leaves
    the state safe, then asks again; it gives only allocations of equal priority, and does not let anybody be overtaken
    for ever whatever is answered here.
    """

    name: ClassVar[str]

    def rank(self, waiting: Sequence[Waiting], free: Mapping[str, int]) -> Sequence[Waiting]:
        """Return `waiting` in the order in which to serve them, if there were room; `free`: bytes per device."""
        ...
