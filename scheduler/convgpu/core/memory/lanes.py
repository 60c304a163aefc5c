"""Sizes of all devices in one integer, so that one subtraction compares those of all devices.

Each device has a lane of bits. Of what is free, the highest bit of each lane, its *guard*, is set: a need is
subtracted, and where it exceeds what is free it borrows the guard (L. Lamport, Multiple Byte Processing with Full-Word
Instructions, 1975). A need above 0 and what is free are both greater by an *offset*, so that a device of which less
than nothing is free stops only those that need memory of it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from convgpu.core.memory.bankers import Sizes

_WIDTH: Final = 72  # bits of a lane: sums and differences of sizes below 2 ** 64, the offset and the guard
_OFFSET: Final = 1 << (_WIDTH - 2)
_GUARD: Final = 1 << (_WIDTH - 1)


class Lanes:
    """Where each device has its lane.

    What is free holds a need if `(free - need) & guards == guards`.

    Args:
        devices: all that there are.

    Attributes:
        shifts: by device, the number of the first bit of its lane.
        guards: of all lanes.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self.shifts = {device: number * _WIDTH for number, device in enumerate(devices)}
        self.guards = sum(_GUARD << shift for shift in self.shifts.values())

    def pack(self, sizes: Sizes) -> int:
        """Return sizes that can be added to, and subtracted from, what is free."""
        return sum(size << self.shifts[device] for device, size in sizes)

    def pack_need(self, sizes: Sizes) -> int:
        """Return a need; all sizes are above 0."""
        return sum((size + _OFFSET) << self.shifts[device] for device, size in sizes)

    def pack_free(self, free: Mapping[str, int]) -> int:
        """Return what is free of all devices; it may be negative."""
        return sum((size + _OFFSET + _GUARD) << self.shifts[device] for device, size in free.items())
