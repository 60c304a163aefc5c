"""What of each device may be handed out.

Its total, less what the driver takes for itself, less what foreign processes hold, less the reserve.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from convgpu.core import events as e
from convgpu.daemon.auditing import Found, is_news
from convgpu.daemon.devices import Device, DeviceError, Devices
from convgpu.daemon.kept import DeviceMemory
from convgpu.daemon.options import DeviceCapacity
from convgpu.daemon.sessions import Sessions
from convgpu.daemon.settling import Settling
from convgpu.daemon.store import Store

log = logging.getLogger(__name__)


def measure_memory(
    devices: Devices,
    present: Sequence[Device],
    reserve: int,
    known: Mapping[str, DeviceMemory],
    is_ours: Callable[[int], bool],
) -> list[DeviceMemory]:
    """Return what is known of the memory of each device at the scheduler's start.

    What nobody holds is the driver's own; or an ended process's that the driver has not freed yet, so a smaller figure
    of an earlier run of the scheduler is believed.

    Args:
        devices: to ask.
        present: all of them, as found just now.
        reserve: bytes of each device that are never handed out.
        known: what an earlier run of the scheduler knew, since the machine was started.
        is_ours: says whether a pid is a container's.
    """
    rows = []
    for device in present:
        held: Mapping[int, int] = {}
        try:
            held = devices.used_by(device.uuid)
        except DeviceError as error:
            log.warning("who uses %s is not known: %s", device.uuid, error)
        foreigners = sum(size for pid, size in held.items() if not is_ours(pid))
        own = max(device.total - device.free - sum(held.values()), 0)
        earlier = known.get(device.uuid)
        if earlier is not None and earlier.total == device.total:
            own = min(own, earlier.own)
        capacity = max(device.total - own - foreigners - reserve, 0)
        rows.append(DeviceMemory(device.uuid, device.total, capacity, own, foreigners))
    return rows


def usable(present: Sequence[Device], memory: Sequence[DeviceMemory]) -> list[DeviceCapacity]:
    """Return the devices that have anything to hand out.

    Raises:
        DeviceError: none has.
    """
    rows = []
    for device, one in zip(present, memory, strict=True):
        if one.capacity > 0:
            rows.append(DeviceCapacity(device.uuid, device.index, one.capacity, one.capacity + one.foreigners))
        else:
            log.error("device %s is left out: all of it is in use or reserved", device.uuid)
    if not rows:
        raise DeviceError("no device has memory to hand out: all of it is in use by other programs, or reserved")
    return rows


class Capacities:
    """Lets what may be handed out follow what foreign programs hold.

    `rows` are the usable devices as they are now; `foreign` is in bytes by device.

    Args:
        memory: of all devices, as measured at the start.
        rows: of those that are usable.
    """

    def __init__(
        self,
        sessions: Sessions,
        store: Store,
        settling: Settling,
        memory: Sequence[DeviceMemory],
        rows: Sequence[DeviceCapacity],
    ) -> None:
        self.rows = list(rows)
        self.foreign = {one.device: one.foreigners for one in memory}
        self._sessions = sessions
        self._store = store
        self._settling = settling
        self._memory = {one.device: one for one in memory}
        self._own = {one.device: one.own for one in memory}

    def lose(self, device: str) -> None:
        """Nothing may be handed out while nobody knows what the device is at."""
        self._set(device, 0)

    def is_more(self, device: str, found: Found) -> bool:
        """Is there more memory that nobody holds than is known of?"""
        return found.unattributed > self._own[device]

    def follow(self, device: str, found: Found, before: Found | None, *, quiet: bool) -> None:
        """Take up what a look found, and what the look before did.

        Args:
            device: UUID.
            found: now.
            before: at the look before, if there was one.
            quiet: nothing settles, and NVML names every process of ours: what nobody holds is the driver's, or of a
                program that NVML does not name.
        """
        if quiet and before is not None:
            lasting = min(before.unattributed, found.unattributed)
            self._own[device] = max(self._memory[device].own, lasting)
            self._settling.set_own(device, self._own[device])
        foreign = found.foreign + self._own[device] - self._memory[device].own
        if is_news(self.foreign[device], foreign):
            self.foreign[device] = foreign
        self.regain(device)

    def regain(self, device: str) -> None:
        """Hand out what the device has, foreign memory as it is known: it answers."""
        nominal = next(one.nominal for one in self.rows if one.uuid == device)
        self._set(device, max(nominal - self.foreign[device], 0))

    def _set(self, device: str, capacity: int) -> None:
        if self._sessions.machine.ledger.capacity[device] == capacity:
            return
        foreign = self.foreign[device]
        log.info("device %s: capacity=%d foreign=%d", device, capacity, foreign)
        self.rows[:] = [replace(one, capacity=capacity) if one.uuid == device else one for one in self.rows]
        self._store.set_memory(replace(self._memory[device], capacity=capacity, foreigners=foreign))
        self._sessions.happen(e.CapacityChanged(device, capacity))
