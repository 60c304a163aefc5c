"""The claims of all holders, in the order of their needs on each device, as the walk over them (margins.py) reads them.

The table changes with every grant, so that no decision sorts or scans all claims.

What a claim has of all devices is also kept in one integer, so that one subtraction compares those of all devices.
Each device has a lane of bits. Of what is free, the highest bit of each lane, its *guard*, is set: a need is
subtracted, and where it exceeds what is free it borrows the guard (L. Lamport, Multiple Byte Processing with Full-Word
Instructions, 1975). A need above 0 and what is free are both greater by an *offset*, so that a device of which less
than nothing is free stops only those that need memory of it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Final

from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.device_groups import DeviceGroups

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


class ClaimTable:
    """Claims by container.

    Args:
        devices: all that there are.

    Attributes:
        claims: by container.
        needs: by device, the holders that may still ask for memory of it, and the bytes.
        by_need: by device, the same as (bytes, container), least first.
        sole: by device, those of `by_need` that may ask for memory of no other device.
        lacking: by device and container, on how many other devices it may still ask for memory; without satisfied ones.
        lanes: of the devices.
        packed: by container, what it may still ask for and what it was granted, as integers of these lanes.
        satisfied: by device, the bytes granted to holders that may ask for nothing more: they can end whatever is free.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self.claims: dict[str, Claim] = {}
        self.needs: dict[str, dict[str, int]] = {device: {} for device in devices}
        self.by_need: dict[str, list[tuple[int, str]]] = {device: [] for device in self.needs}
        self.sole: dict[str, list[tuple[int, str]]] = {device: [] for device in self.needs}
        self.lacking: dict[str, dict[str, int]] = {device: {} for device in self.needs}
        self.satisfied = dict.fromkeys(self.needs, 0)
        self.lanes = Lanes(self.needs)
        self.packed: dict[str, tuple[int, int]] = {}
        self._groups = DeviceGroups()

    def put(self, container: str, claim: Claim | None) -> None:
        """Set the claim of a container; None when it holds nothing any more."""
        before = self.claims.get(container)
        if before == claim:
            return
        if before is not None:
            self._remove(container, before)
        if claim is not None:
            self._add(container, claim)

    def _add(self, container: str, claim: Claim) -> None:
        self.claims[container] = claim
        self.packed[container] = self.lanes.pack_need(claim.need), self.lanes.pack(claim.granted)
        for device, size in claim.need:
            self.needs[device][container] = size
            insort(self.by_need[device], (size, container))
        if len(claim.need) == 1:
            device, size = claim.need[0]
            insort(self.sole[device], (size, container))
        if claim.need:
            for device, lacking in self.lacking.items():
                lacking[container] = len(claim.need) - (container in self.needs[device])
        else:
            self._add_satisfied(claim.granted, 1)
        self._groups.add(claim.devices)

    def _remove(self, container: str, claim: Claim) -> None:
        del self.claims[container], self.packed[container]
        for device, size in claim.need:
            del self.needs[device][container]
            _discard(self.by_need[device], (size, container))
        if len(claim.need) == 1:
            device, size = claim.need[0]
            _discard(self.sole[device], (size, container))
        if claim.need:
            for lacking in self.lacking.values():
                del lacking[container]
        else:
            self._add_satisfied(claim.granted, -1)
        self._groups.remove(claim.devices)

    def _add_satisfied(self, granted: Sizes, sign: int) -> None:
        for device, size in granted:
            self.satisfied[device] += sign * size

    def connected(self, device: str) -> frozenset[str]:
        """Return the devices whose memory decides who can end on this one: those that holders of it have limits on."""
        return self._groups.connected(device)


def _discard(ordered: list[tuple[int, str]], entry: tuple[int, str]) -> None:
    del ordered[bisect_left(ordered, entry)]
