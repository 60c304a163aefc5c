"""What of each device may be handed out.

Its total, less what the driver takes for itself, less what foreign processes hold, less the reserve.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from convgpu.daemon.devices import Device, DeviceError, Devices
from convgpu.daemon.options import DeviceCapacity
from convgpu.daemon.store import DeviceMemory

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
