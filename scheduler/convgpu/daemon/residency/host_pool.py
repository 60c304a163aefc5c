"""How much host memory the porter gets, and what of it is promised beside the devices; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

IN_FLIGHT: Final = 512 << 20  # bytes of pieces that are on the host and on one device at the same time


@dataclass(frozen=True, slots=True)
class HostPool:
    """The plan for the host memory of all devices.

    Attributes:
        size: bytes to be taken from the host at most.
        capacity: of the devices, in bytes.
        threshold: what may be promised of a device, as a multiple of its capacity; at least 1.
    """

    size: int
    capacity: Mapping[str, int]
    threshold: float

    @property
    def is_promised(self) -> bool:
        """Whether more than the devices have is promised, for which all of the memory has to be there."""
        return self.threshold > 1

    def share(self, device: str, registered: int) -> tuple[int, int]:
        """Return a device's share of the memory that is there, and what of the share is not promised to anybody."""
        total = sum(self.capacity.values())
        slack = min(IN_FLIGHT, registered // len(self.capacity)) if total else 0
        share = slack + (registered - slack * len(self.capacity)) * self.capacity[device] // total if total else 0
        promised = min(int((self.threshold - 1) * self.capacity[device]), share - slack)
        return share, share - promised

    def needed(self, limits: Mapping[str, int]) -> int:
        """Return the bytes to take from the host for containers that may put out so many of each device.

        Each device gets its part of what is taken, so that the one with the largest limits for its size says how much
        that is. Not where `is_promised`: then it is all.
        """
        total = sum(self.capacity.values())
        parts = [
            limits.get(device, 0) * total // capacity + 1 for device, capacity in self.capacity.items() if capacity
        ]
        wanted = max(parts, default=0) + IN_FLIGHT * len(self.capacity)
        return min(-(-wanted >> 21) << 21, self.size)


def plan_pool(wanted: int | None, host: int, capacity: Mapping[str, int], threshold: float) -> HostPool:
    """Return the plan for a host with so many bytes of memory.

    Args:
        wanted: as the setting says; None: as much as can leave the devices, up to half of the host.
        host: bytes of memory of the host.
        capacity: of the devices, in bytes.
        threshold: as in HostPool.

    Raises:
        ValueError: more than half of the host's memory is asked for; the text names what would do.
    """
    most = host // 2
    if wanted is not None and wanted > most:
        raise ValueError(
            f"CONVGPU_HOST_MEMORY={wanted}: half of this host's memory is the most that may be pinned: {most >> 20}m"
        )
    needed = int(max(threshold - 1, 1.0) * sum(capacity.values())) + IN_FLIGHT * len(capacity)
    size = min(needed, most) if wanted is None else wanted
    return HostPool(size >> 21 << 21, dict(capacity), threshold)
