"""The interface of placement policies: the devices that a container could get go in, their order comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that a container could get. All sizes in bytes.

    Attributes:
        device: UUID.
        position: its place among the devices of the host; of equal candidates the first is taken.
        limit: of the container on this device.
        capacity: that may be handed out, at least `limit`.
        free: capacity that is granted to nobody.
        promised: the sum of the limits of the containers that are placed there.
        containers: number of these containers.
    """

    device: str
    position: int
    limit: int
    capacity: int
    free: int
    promised: int
    containers: int

    @property
    def unpromised(self) -> int:
        """Capacity that no container's limit claims; negative when more is promised than there is."""
        return self.capacity - self.promised

    @property
    def load(self) -> float:
        """What would be promised with this container, relative to the capacity."""
        return (self.promised + self.limit) / self.capacity


class PlacementPolicy(Protocol):
    """Chooses the devices of a container when its first process starts.

    Pure: the same arguments give the same answer. The machine takes as many devices from the front of the answer as the
    container gets. It passes only devices that can hold the container's limit and are not drained.
    """

    name: ClassVar[str]

    def rank(self, candidates: Sequence[Candidate], limits: Sequence[int]) -> Sequence[Candidate]:
        """Return the candidates, the best first; `limits`: of all placed containers, as a sample of what will come."""
        ...
