"""What a CUDA context takes of a device: no API tells before it is there."""

import logging
from typing import Final

from convgpu.daemon.devices import DeviceError, Devices

log = logging.getLogger(__name__)

# More than any seen (526 MiB on an H200), so that the first context of a device is not a surprise.
UNKNOWN: Final = 640 << 20
# What a process says of itself must not become everybody's estimate.
PLAUSIBLE: Final = 2 * UNKNOWN


class Contexts:
    """Learns the size of contexts per device from the driver's own count per process."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._learned: dict[str, int] = {}

    def size(self, device: str, limit: int) -> int:
        """Return what to charge for a new context, in bytes; an estimate never exceeds the limit."""
        return min(self._learned.get(device, UNKNOWN), limit)

    def held(self, device: str, pid: int) -> int:
        """Return what the driver says that a process holds, in bytes; 0 when it does not know the process."""
        try:
            return self._devices.used_by(device).get(pid, 0)
        except DeviceError as error:
            log.warning("memory of pid %d: %s", pid, error)
            return 0

    def measure(self, device: str, pid: int, charged: int, used: int) -> int:
        """Return what the contexts of a process take, or 0 when the driver does not know.

        Args:
            device: UUID.
            pid: of the process as we see it.
            charged: bytes charged for its contexts so far.
            used: bytes it uses otherwise.
        """
        size = max(self.held(device, pid) - used, 0)
        first = used == 0 and charged == self._learned.get(device, charged)
        if first and charged and 0 < size <= min(PLAUSIBLE, self._learned.get(device, PLAUSIBLE)):  # not one that grew
            self._learned[device] = size
        return size
