"""What a CUDA context takes of a device: no API tells before it is there."""

import logging
from typing import Final

from convgpu.daemon.devices import DeviceError, Devices

log = logging.getLogger(__name__)

# More than any seen (526 MiB on an H200), so that the first context of a device is not a surprise.
UNKNOWN: Final = 640 << 20


class Contexts:
    """Learns the size of contexts per device from the driver's own count per process."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._learned: dict[str, int] = {}

    def size(self, device: str, limit: int) -> int:
        """Return what to charge for a new context, in bytes; an estimate alone never exceeds the limit."""
        return self._learned.get(device, min(UNKNOWN, limit))

    def measure(self, device: str, pid: int, charged: int, used: int) -> int:
        """Return what the contexts of a process take, or 0 when the driver does not know.

        Args:
            device: UUID.
            pid: of the process as we see it.
            charged: bytes charged for its contexts so far.
            used: bytes it uses otherwise.
        """
        try:
            held = self._devices.used_by(device).get(pid, 0)
        except DeviceError as error:
            log.warning("contexts of pid %d: %s", pid, error)
            return 0
        size = max(held - used, 0)
        first = charged == self._learned.get(device, charged)
        if size and charged and used == 0 and first:
            self._learned[device] = size
        return size
