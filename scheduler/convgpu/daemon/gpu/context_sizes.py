"""The size of a CUDA context on each device, learned from existing contexts: no API reports it in advance."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from convgpu.core.audit.attribution import uncounted
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor

log = logging.getLogger(__name__)

# More than any measured size (526 MiB on an H200), so that the first context of a device is not undercharged.
UNKNOWN: Final = 640 << 20
# Bytes. A process's claim beyond this does not become the estimate for all.
PLAUSIBLE: Final = 2 * UNKNOWN
# Bytes that are listed for a process with a context, at least: others have nothing that is not counted.
_LEAST: Final = 64 << 20
_MEASURED: Final = 8  # contexts of a device, of which the least is believed


class ContextSizes:
    """Learns the size of contexts per device from the driver's own count per process.

    This count lacks a small part of each context (5.8 to 8.8 MiB on an H200), which is charged with it:
    uncharged, it would overcommit a device whose whole capacity is granted.

    Attributes:
        least: bytes by device that a context takes at least, as far as one was seen; a limit below is of no use.

    Args:
        own: bytes of each device, by UUID, that the driver takes for itself; kept up to date.
        seen: `least` of an earlier scheduler. The driver may have changed since: what is seen now takes its place.
        on_seen: is called with each change of `least`.
    """

    def __init__(
        self,
        executor: NvmlExecutor,
        own: Mapping[str, int],
        seen: Mapping[str, int] | None = None,
        on_seen: Callable[[Mapping[str, int]], None] = lambda _least: None,
    ) -> None:
        self._executor = executor
        self._own = own
        self.least = dict(seen or {})
        self._on_seen = on_seen
        self._learned: dict[str, int] = {}
        self._measured: dict[str, deque[int]] = {}
        self._uncounted: dict[str, int] = {}

    def size(self, device: str, limit: int) -> int:
        """Return the charge for a new context, in bytes; an estimate never exceeds the limit."""
        return min(self._learned.get(device, UNKNOWN), limit)

    async def held(self, device: str, pid: int) -> int | None:
        """Return the memory of a process by the driver's count, with its uncounted part, in bytes; None if unknown."""
        try:
            counted, used, is_steady = await self._executor.ask(device, _count)
        except DeviceError as error:
            log.warning("memory of pid %d: %s", pid, error)
            return None
        if pid not in counted:
            return 0
        if is_steady and device not in self._uncounted:
            self._learn_uncounted(device, counted, used)
        return counted[pid] + self._uncounted.get(device, 0)

    async def held_on_each(self, devices: Iterable[str], pid: int) -> dict[str, int | None]:
        """Return the memory of a process on each of these devices, as `held`."""
        uuids = list(devices)
        sizes = await asyncio.gather(*(self.held(uuid, pid) for uuid in uuids))
        return dict(zip(uuids, sizes, strict=True))

    async def unowned(self, device: str) -> int:
        """Return the memory in use that the driver counts for no process, in bytes: managed memory; 0 if unknown."""
        try:
            counted, used, _ = await self._executor.ask(device, _count)
        except DeviceError:
            return 0
        each = self._uncounted.get(device, 0)
        return max(used - sum(counted.values()) - each * _contexts(counted) - self._own.get(device, 0), 0)

    def _learn_uncounted(self, device: str, counted: Mapping[int, int], used: int) -> None:
        """Learn how much of each context the driver does not count: the memory without an owner, if it is little."""
        more = used - sum(counted.values()) - self._own.get(device, 0)
        if (contexts := _contexts(counted)) and 0 <= more <= uncounted(counted.values()):
            self._uncounted[device] = more // contexts

    async def measure(self, device: str, pid: int, charged: int, used: int) -> int:
        """Return the size of the contexts of a process in bytes, 0 if the driver does not report it.

        Args:
            device: UUID.
            pid: of the process in our pid namespace.
            charged: bytes charged for its contexts so far.
            used: bytes it uses otherwise.
        """
        size = max((await self.held(device, pid) or 0) - used, 0)
        first = used == 0 and charged == self._learned.get(device, charged)
        if first and charged and 0 < size <= PLAUSIBLE:
            self._learn(device, size)
        return size

    def _learn(self, device: str, size: int) -> None:
        """Take the least of what was seen last: a process may have more than a context, or say it of less than one."""
        seen = self._measured.setdefault(device, deque(maxlen=_MEASURED))
        seen.append(size)
        self._learned[device] = min(seen)
        self._see(device, min(self._learned[device], UNKNOWN))

    def _see(self, device: str, size: int) -> None:
        if self.least.get(device) != size:
            self.least[device] = size
            self._on_seen(self.least)


def _contexts(counted: Mapping[int, int]) -> int:
    return sum(size >= _LEAST for size in counted.values())


def _count(devices: Devices, uuid: str) -> tuple[Mapping[int, int], int, bool]:
    """Return the bytes by process, the bytes in use, and whether nothing changed between the two readings."""
    before = devices.used_by(uuid)
    used = devices.used(uuid)
    after = devices.used_by(uuid)
    return after, used, before == after
