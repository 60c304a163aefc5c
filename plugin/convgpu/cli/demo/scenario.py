"""The demonstration's scenario: four containers that together want more than the GPU has. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from convgpu.protocol.records import Container, Device
from convgpu.protocol.sizes import MIB, format_size

CONTEXT: Final = 1 << 30  # bytes of its limit that each container leaves for its CUDA context
SMALLEST: Final = 8 << 30  # capacity below which the limits would leave no room beside the contexts


@dataclass(frozen=True, slots=True)
class DemoContainer:
    """A container of the scenario: takes `size` bytes in `steps` allocations over a second, holds them for `hold` s.

    `wave` 0 starts first; wave 1 starts when wave 0 has its memory. `stays`: it ends only when it is released,
    so that on a slow machine too the others find the memory taken. `may_leave`: its memory may leave the GPU, and at
    its end it compares what it has there with what it wrote.
    """

    name: str
    limit: int
    size: int
    hold: float
    wave: int
    stays: bool = False
    steps: int = 10
    may_leave: bool = False

    @property
    def memory(self) -> str:
        """The limit as an option."""
        return f"{self.limit // MIB}m"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `gpu-hold`."""
        stay = ["--wait-for-stdin"] if self.stays else []
        stay += ["--check"] if self.may_leave else []
        steps = ("--steps", str(self.steps), "--pause-before", f"{1 / self.steps:g}")
        return (*steps, "--hold", f"{self.hold:g}", *stay, f"{self.size // MIB}m")


def containers(device: Device) -> tuple[DemoContainer, ...]:
    """Return the scenario for a device: limits of 7, 8, 6 and 4 sixteenths of its capacity.

    The first two fit beside each other; the others find only a remainder and have to wait after some allocations.

    Raises:
        ValueError: the device is too small.
    """
    if device.capacity < SMALLEST:
        raise ValueError(
            f"the demonstration needs a GPU with {format_size(SMALLEST)}; {device.name} has "
            f"{format_size(device.capacity)} to hand out"
        )

    def container(name: str, sixteenths: int, hold: float, wave: int, *, stays: bool = False) -> DemoContainer:
        limit = device.capacity * sixteenths // 16 // MIB * MIB
        return DemoContainer(name, limit, limit - CONTEXT, hold, wave, stays)

    return (
        container("A", 7, 1.0, 0, stays=True),
        container("B", 8, 5.0, 0),
        container("C", 6, 2.0, 1),
        container("D", 4, 1.5, 1),
    )


def leaving_containers(device: Device) -> tuple[DemoContainer, ...]:
    """Return the scenario of memory that leaves: two containers of ten sixteenths, of which the first becomes idle.

    Raises:
        ValueError: the device is too small.
    """
    limit = device.capacity * 10 // 16 // MIB * MIB
    if limit < 2 * CONTEXT:
        raise ValueError(
            f"the demonstration needs a GPU with 4GiB; {device.name} has {format_size(device.capacity)} to hand out"
        )
    size = limit - CONTEXT * 3 // 4
    return (
        DemoContainer("A", limit, size, 0.5, 0, stays=True, may_leave=True),
        DemoContainer("B", limit, size, 1.5, 1, may_leave=True),
    )


def at_rest(container: DemoContainer, known: Mapping[str, Container]) -> bool:
    """Return whether a container has all that it will take, or waits, so that the next wave may start.

    One whose memory may leave is at rest with its memory only: it waits a moment until another's memory has left.

    Args:
        container: of the scenario.
        known: the scheduler's records, by the container's name.
    """
    record = known.get(container.name)
    if record is None:
        return False
    used = max((share.usage for share in record.devices), default=0)
    return used >= container.size or (bool(record.waiting) and not container.may_leave)
