"""What a policy sees and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


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
    """

    sequence: int
    container: str
    container_order: int
    device: str
    request: int
    size: int
    missing: int
    since: float


class Policy(Protocol):
    """Chooses which waiting allocation gets free memory.

    Pure: the same snapshot gives the same answer. The machine serves the first of the answer whose grant leaves
    the state safe, then asks again, and does not let anybody be overtaken for ever whatever is answered here.
    """

    def rank(self, waiting: Sequence[Waiting], free: Mapping[str, int]) -> Sequence[Waiting]:
        """Return `waiting` in the order in which to serve them. Each fits in `free` (bytes per device) by itself."""
        ...
