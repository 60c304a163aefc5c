"""The interface of eviction policies: the containers whose memory may leave a device go in, their order comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Victim:
    """One container whose memory may leave a device, as a policy sees it.

    Attributes:
        container: its name.
        container_order: its place in the order in which containers arrived; smaller is older.
        size: bytes that may leave the device.
        since: seconds on the clock of the events: since when it has been of no use there (waits, is idle, ran enough).
        priority: of the container; the machine heeds it, not the policy.
    """

    container: str
    container_order: int
    size: int
    since: float
    priority: int = 0


class EvictionPolicy(Protocol):
    """Chooses whose memory leaves first.

    Pure: the same arguments give the same answer. The machine takes from the first of the answer what it lacks, then
    from the next. It passes only containers of one class at a time (paused in an allocation, then idle, then those
    whose quantum is over), and none whose turn is overdue while others are left.
    """

    name: ClassVar[str]

    def rank(self, victims: Sequence[Victim], lacking: int) -> Sequence[Victim]:
        """Return `victims` in the order in which their memory leaves; `lacking`: bytes that are needed."""
        ...
