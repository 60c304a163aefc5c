"""The claims of all holders, in the order of their needs on each device, as the walk over them (margins.py) reads them.

The table changes with every grant, so that no decision sorts or scans all claims.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.device_groups import DeviceGroups
from convgpu.core.memory.lanes import Lanes


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
