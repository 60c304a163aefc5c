"""The capacity of each device: what ConvGPU may hand out of it.

It is the device's total, less what the driver takes for itself, less external memory, less the reserve.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from convgpu.core import events as e
from convgpu.core.audit.attribution import NOISE, Attribution, MemorySample, is_significant
from convgpu.core.volume_options import DeviceCapacity
from convgpu.daemon.gpu.nvml import Device, DeviceError, Devices
from convgpu.daemon.gpu.settling import Settling
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.outliving import OutlivingMemory
from convgpu.daemon.storage.devices import DeviceTable
from convgpu.daemon.storage.rows import DeviceMemory

log = logging.getLogger(__name__)

_CONCEDED_PART: Final = 32
_LEAST_KEPT: Final = 2 << 20  # bytes that the driver keeps of what anybody has a descriptor of, at least
FULL: Final = "all of it is in use by other programs, or reserved"


def measure_memory(
    devices: Devices,
    present: Sequence[Device],
    reserve: int,
    known: Mapping[str, DeviceMemory],
    is_ours: Callable[[int], bool],
) -> list[DeviceMemory]:
    """Return the memory figures of each device at the scheduler's start.

    Memory that no process holds is the driver's own, or that of an ended process and not freed yet. Hence the smaller
    figure counts, if an earlier run of the scheduler saw one.

    Args:
        devices: NVML.
        present: all devices, as found just now.
        reserve: bytes of each device that are never handed out.
        known: the figures of an earlier run of the scheduler since the machine was started.
        is_ours: says whether a pid belongs to a container.
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
        external = sum(size for pid, size in held.items() if not is_ours(pid))
        own = max(device.total - device.free - sum(held.values()), 0)
        earlier = known.get(device.uuid)
        if earlier is not None and earlier.total == device.total:
            own = min(own, earlier.own)
        capacity = max(device.total - own - external - reserve, 0)
        rows.append(DeviceMemory(device.uuid, device.total, capacity, own, external))
    return rows


def initial_capacities(present: Sequence[Device], memory: Sequence[DeviceMemory], reserve: int) -> list[DeviceCapacity]:
    """Return the capacity of each device, also of those that have none now.

    Raises:
        DeviceError: there is no device.
    """
    if not present:
        raise DeviceError("NVML shows no device that can be named: see what nvidia-smi says, and start again")
    rows = []
    for device, figures in zip(present, memory, strict=True):
        nominal = max(figures.total - figures.own - reserve, 0)
        trouble = device.trouble or ("" if figures.capacity else FULL)
        if trouble:
            log.error("device %s hands out nothing: %s", device.uuid, trouble)
        rows.append(DeviceCapacity(device.uuid, device.index, figures.capacity, nominal, trouble))
    return rows


def is_lost(trouble: str) -> bool:
    """Return whether a device without capacity has it because it does not answer, or cannot be shared at all."""
    return trouble not in {"", FULL}


def _left(before: Attribution | None, attribution: Attribution) -> int:
    """Return what external programs may have left that ended since the sample before: it is not free yet.

    The driver lists a program no more before its memory is free. Without an owner that memory counts once two samples
    have seen it; for the one between, it is external still.
    """
    if before is None:
        return 0
    return max(min(before.external - attribution.external, attribution.unattributed - before.unattributed), 0)


class Capacities:
    """Lets the capacity of each device follow external memory.

    Attributes:
        rows: the capacities as they are now.
        total: bytes of each device.
        external: bytes of each device that external programs hold.
        own: bytes of each device that the driver takes for itself, with lasting memory that no process holds.
        least: the smallest figure that was seen for `own`.
        outliving: what of the memory that no process holds is containers', and not external.
        conceded: bytes of each device that the driver refused although nobody is known to hold them.

    Args:
        driver: of the machine, which learns of each change.
        store: keeps the figures over restarts.
        settling: has to know the driver's own share.
        memory: of all devices, as measured at the start.
        rows: the capacities that follow from it.
        reserve: bytes of each device that are never handed out.
        outliving: the attribute.
    """

    def __init__(
        self,
        driver: MachineDriver,
        store: DeviceTable,
        settling: Settling,
        memory: Sequence[DeviceMemory],
        rows: Sequence[DeviceCapacity],
        reserve: int,
        outliving: OutlivingMemory,
    ) -> None:
        self.rows = list(rows)
        self.outliving = outliving
        self.total = {figures.device: figures.total for figures in memory}
        self.external = {figures.device: figures.external for figures in memory}
        self.conceded = dict.fromkeys(self.total, 0)
        self._driver = driver
        self._store = store
        self._settling = settling
        self._reserve = reserve
        self.least = {figures.device: figures.own for figures in memory}
        self.own = dict(self.least)

    def lose(self, device: str, why: str) -> None:
        """Hand out nothing of a device that does not answer."""
        self._set(device, 0, why)

    def measure(self, sample: MemorySample) -> None:
        """Take up a device that answers again, or for the first time."""
        if self.total[sample.device] == 0:
            held = 0 if sample.held is None else sum((*sample.held.values(), *sample.ended.values()))
            self.own[sample.device] = self.least[sample.device] = max(sample.used - held, 0)
            self._settling.set_own(sample.device, self.own[sample.device])
        self.total[sample.device] = sample.total
        if sample.held is None:
            self._hand_out(sample.device)

    def is_more(self, device: str, attribution: Attribution) -> bool:
        """Say whether a device has more memory without an owner than the driver is known to take."""
        return attribution.unattributed > self.own[device]

    def is_all_held(self, device: str, attribution: Attribution, before: Attribution | None) -> bool:
        """Say whether living processes, or the driver itself, have all of a device's memory, in two samples."""
        least = self.least[device] + _LEAST_KEPT
        return before is not None and max(before.without_process, attribution.without_process) < least

    def follow(self, device: str, attribution: Attribution, before: Attribution | None, *, is_settled: bool) -> None:
        """Let the capacity of a device follow an attribution.

        Args:
            device: UUID.
            attribution: of the latest sample.
            before: of the sample before, None if there was none.
            is_settled: nothing settles, and NVML lists every process of ours: memory without an owner is the driver's,
                or that of a program that NVML does not list.
        """
        if before is not None:
            self.least[device] = min(self.least[device], max(before.unheld, attribution.unheld))
            lasting = min(before.unattributed, attribution.unattributed) if is_settled else self.own[device]
            self.own[device] = max(self.least[device], lasting)
            self._settling.set_own(device, self.own[device] + self.outliving.stays(device))
        external = attribution.external + self.own[device] - self.least[device] + _left(before, attribution)
        if is_significant(self.external[device], external):
            self.external[device] = external
        self._hand_out(device)

    def concede(self, device: str, size: int) -> None:
        """Hand out `size` bytes less of a device: the driver has refused what the ledger had; until the next start.

        Nothing is conceded below zero, and at most a part of the device: beyond that it is no rounding of the driver's.
        """
        most = self.total[device] // _CONCEDED_PART
        self.conceded[device] = min(self.conceded[device] + max(size, 0), most)
        self._hand_out(device)

    def _hand_out(self, device: str) -> None:
        """Hand out what the device has, less the external memory that is known."""
        row = self._row(device)
        nominal = max(self.total[device] - self.least[device] - self._reserve, 0)
        if abs(nominal - row.nominal) < NOISE:
            nominal = row.nominal
        capacity = max(nominal - self.external[device] - self.conceded[device], 0)
        self._replace(replace(row, nominal=nominal))
        self._set(device, capacity, "" if capacity else FULL)

    def _row(self, device: str) -> DeviceCapacity:
        return next(row for row in self.rows if row.uuid == device)

    def _replace(self, changed: DeviceCapacity) -> None:
        self.rows[:] = [changed if row.uuid == changed.uuid else row for row in self.rows]

    def _set(self, device: str, capacity: int, trouble: str) -> None:
        self._replace(replace(self._row(device), capacity=capacity, trouble=trouble))
        lost = is_lost(trouble)
        if self._driver.machine.device(device).capacity == capacity and lost == (device in self._driver.machine.lost):
            return
        external = self.external[device]
        log.info("device %s: capacity=%d external=%d", device, capacity, external)
        self._store.set_memory(DeviceMemory(device, self.total[device], capacity, self.least[device], external))
        self._driver.dispatch(e.CapacityChanged(device, capacity, self._row(device).nominal, lost))
