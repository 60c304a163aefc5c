"""What of each device may be handed out.

Its total, less what the driver takes for itself, less what foreign processes hold, less the reserve.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from convgpu.core import events as e
from convgpu.core.attribution import NOISE, Found, Look, is_news
from convgpu.core.volume_options import DeviceCapacity
from convgpu.daemon.gpu.nvml import Device, DeviceError, Devices
from convgpu.daemon.gpu.settling import Settling
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.storage.rows import DeviceMemory
from convgpu.daemon.storage.store import Store

log = logging.getLogger(__name__)

FULL: Final = "all of it is in use by other programs, or reserved"


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
        if device.trouble:
            rows.append(DeviceMemory(device.uuid, 0, 0, 0, 0))
            continue
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


def as_rows(present: Sequence[Device], memory: Sequence[DeviceMemory], reserve: int) -> list[DeviceCapacity]:
    """Return what may be handed out of each device, also of those that have nothing now.

    Raises:
        DeviceError: there is no device.
    """
    if not present:
        raise DeviceError("NVML shows no device that can be named: see what nvidia-smi says, and start again")
    rows = []
    for device, one in zip(present, memory, strict=True):
        nominal = max(one.total - one.own - reserve, 0)
        trouble = device.trouble or ("" if one.capacity else FULL)
        if trouble:
            log.error("device %s hands out nothing: %s", device.uuid, trouble)
        rows.append(DeviceCapacity(device.uuid, device.index, one.capacity, nominal, trouble))
    return rows


class Capacities:
    """Lets what may be handed out follow what foreign programs hold.

    `rows` are the devices as they are now; in bytes by device: `total`, `foreign`, and `own`, what the driver takes for
    itself, with what lasts and no process holds.

    Args:
        memory: of all devices, as measured at the start.
        rows: the same as it may be handed out.
        reserve: bytes of each device that are never handed out.
    """

    def __init__(
        self,
        driver: MachineDriver,
        store: Store,
        settling: Settling,
        memory: Sequence[DeviceMemory],
        rows: Sequence[DeviceCapacity],
        reserve: int,
    ) -> None:
        self.rows = list(rows)
        self.total = {one.device: one.total for one in memory}
        self.foreign = {one.device: one.foreigners for one in memory}
        self._driver = driver
        self._store = store
        self._settling = settling
        self._reserve = reserve
        self._least = {one.device: one.own for one in memory}  # that the driver was seen to take for itself
        self.own = dict(self._least)

    def lose(self, device: str, why: str) -> None:
        """Nothing may be handed out while nobody knows what the device is at."""
        self._set(device, 0, why)

    def see(self, look: Look) -> None:
        """Measure a device that could not be at the start; whatever it is, it answers."""
        if self.total[look.device] == 0:
            held = 0 if look.held is None else sum(look.held.values())
            self.own[look.device] = self._least[look.device] = max(look.used - held, 0)
            self._settling.set_own(look.device, self.own[look.device])
        self.total[look.device] = look.total
        if look.held is None:
            self._hand_out(look.device)

    def is_more(self, device: str, found: Found) -> bool:
        """Is there more memory that nobody holds than is known of?"""
        return found.unattributed > self.own[device]

    def follow(self, device: str, found: Found, before: Found | None, *, quiet: bool) -> None:
        """Take up what a look found, and what the look before did.

        Args:
            device: UUID.
            found: now.
            before: at the look before, if there was one.
            quiet: nothing settles, and NVML names every process of ours: what nobody holds is the driver's, or of a
                program that NVML does not name.
        """
        if before is not None:
            self._least[device] = min(self._least[device], max(before.unheld, found.unheld))
            lasting = min(before.unattributed, found.unattributed) if quiet else self.own[device]
            self.own[device] = max(self._least[device], lasting)
            self._settling.set_own(device, self.own[device])
        foreign = found.foreign + self.own[device] - self._least[device]
        if is_news(self.foreign[device], foreign):
            self.foreign[device] = foreign
        self._hand_out(device)

    def _hand_out(self, device: str) -> None:
        """Hand out what the device has, foreign memory as it is known: it answers."""
        nominal = max(self.total[device] - self._least[device] - self._reserve, 0)
        if abs(nominal - self._row(device).nominal) < NOISE:
            nominal = self._row(device).nominal
        capacity = max(nominal - self.foreign[device], 0)
        self.rows[:] = [replace(one, nominal=nominal) if one.uuid == device else one for one in self.rows]
        self._set(device, capacity, "" if capacity else FULL)

    def _row(self, device: str) -> DeviceCapacity:
        return next(one for one in self.rows if one.uuid == device)

    def _set(self, device: str, capacity: int, trouble: str) -> None:
        self.rows[:] = [
            replace(one, capacity=capacity, trouble=trouble) if one.uuid == device else one for one in self.rows
        ]
        if self._driver.machine.ledger.capacity[device] == capacity:
            return
        foreign = self.foreign[device]
        log.info("device %s: capacity=%d foreign=%d", device, capacity, foreign)
        self._store.set_memory(DeviceMemory(device, self.total[device], capacity, self._least[device], foreign))
        self._driver.dispatch(e.CapacityChanged(device, capacity, self._row(device).nominal))
