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

SLOT_BITS: Final = 24  # of the key of a holder (`heap_key`): a slot has a number below 2 ** 24
SLOT_MASK: Final = (1 << SLOT_BITS) - 1


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

    A walk reads most of what follows in lists: devices and holders are numbered, the holders by their *slots*. A slot
    that has become free is the next holder's.

    Args:
        devices: all that there are.

    Attributes:
        claims: by container.
        numbers: of the devices.
        slots: of the containers; `names`: what each slot is.
        granted, asked: by slot, what the holder was granted and may still ask for, as numbers of devices and bytes.
        needs: the latter by device and slot.
        sizes: by device, what of these is above 0, least first; `by_need`: the slots in this order.
        sole: by device, the holders that may ask for memory of no other: a heap of keys (`heap_key`).
        lacking: by device and slot, on how many other devices the holder may still ask for memory; -1: it may ask for
            nothing more, or the slot is free.
        lanes: of the devices.
        packed: by container, what it may still ask for and what it was granted, as integers of these lanes.
        satisfied: by device, the bytes granted to holders that may ask for nothing more: they can end whatever is free.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self.claims: dict[str, Claim] = {}
        self.numbers = {device: number for number, device in enumerate(devices)}
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.granted: list[tuple[tuple[int, int], ...]] = []
        self.asked: list[tuple[tuple[int, int], ...]] = []
        self.needs: list[list[int]] = [[] for _ in self.numbers]
        self.sizes: list[list[int]] = [[] for _ in self.numbers]
        self.by_need: list[list[int]] = [[] for _ in self.numbers]
        self.sole: list[list[int]] = [[] for _ in self.numbers]
        self.lacking: list[list[int]] = [[] for _ in self.numbers]
        self.satisfied = [0] * len(self.numbers)
        self.lanes = Lanes(self.numbers)
        self.packed: dict[str, tuple[int, int]] = {}
        self._groups = DeviceGroups()
        self._free_slots: list[int] = []

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
        slot = self.slots[container] = self._take_slot()
        self.names[slot] = container
        self.claims[container] = claim
        self.packed[container] = self.lanes.pack_need(claim.need), self.lanes.pack(claim.granted)
        self.granted[slot] = tuple((self.numbers[device], size) for device, size in claim.granted)
        asked = self.asked[slot] = tuple((self.numbers[device], size) for device, size in claim.need)
        for lacking in self.lacking:
            lacking[slot] = len(asked) or -1
        for number, size in asked:
            self.needs[number][slot] = size
            self.lacking[number][slot] -= 1
            place = bisect_left(self.sizes[number], size)
            self.sizes[number].insert(place, size)
            self.by_need[number].insert(place, slot)
        if len(asked) == 1:
            number, size = asked[0]
            insort(self.sole[number], heap_key(size, slot))
        if not asked:
            self._add_satisfied(slot, 1)
        self._groups.add(claim.devices)

    def _take_slot(self) -> int:
        """Return a slot that is free."""
        if self._free_slots:
            return self._free_slots.pop()
        self.names.append("")
        self.granted.append(())
        self.asked.append(())
        for needs, lacking in zip(self.needs, self.lacking, strict=True):
            needs.append(0)
            lacking.append(-1)
        return len(self.names) - 1

    def _remove(self, container: str, claim: Claim) -> None:
        slot = self.slots.pop(container)
        del self.claims[container], self.packed[container]
        for lacking in self.lacking:
            lacking[slot] = -1
        for number, size in self.asked[slot]:
            self.needs[number][slot] = 0
            place = self.by_need[number].index(slot, bisect_left(self.sizes[number], size))
            del self.sizes[number][place], self.by_need[number][place]
        if len(claim.need) == 1:
            number, size = self.asked[slot][0]
            del self.sole[number][bisect_left(self.sole[number], heap_key(size, slot))]
        if not claim.need:
            self._add_satisfied(slot, -1)
        self._groups.remove(claim.devices)
        self._free_slots.append(slot)

    def _add_satisfied(self, slot: int, sign: int) -> None:
        for number, size in self.granted[slot]:
            self.satisfied[number] += sign * size

    def connected(self, device: str) -> frozenset[str]:
        """Return the devices whose memory decides who can end on this one: those that holders of it have limits on."""
        return self._groups.connected(device)


def heap_key(need: int, slot: int) -> int:
    """Return the key of a holder in a heap of the least needs: integers are compared faster than pairs."""
    return need << SLOT_BITS | slot
