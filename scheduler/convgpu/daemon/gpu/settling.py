"""Watches settling memory, the bytes of ended processes, until the driver has freed it.

A closed socket means that the process no longer uses the memory; the driver frees it later (0.3 s later for
100 GiB on an H200). A process becomes a zombie only after the kernel has closed all its files, the driver's among them,
so a readable pidfd means that the driver is done, but for at most 0.5 ms (docs/measurements.md). A driver that outlives
its processes (the simulated one) and processes of other pid namespaces need a second check: memory that is in use and
held by no process.

The figures come from NVML and not from the ledger, because processes hold more than the ledger has: modules, and
external memory.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from convgpu.core.audit.attribution import UNCOUNTED, uncounted
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.system.background_tasks import BackgroundTasks
from convgpu.daemon.system.procfs import has_ended, is_exiting

log = logging.getLogger(__name__)

STEP: Final = 0.01
# Seconds. Memory still in use after that must belong to another process, and the hook stops waiting for it.
MAX_SETTLING_TIME: Final = 10.0
# Seconds between looks at a process that is ending, beside its pidfd.
_LOOK: Final = 1.0


class Settling:
    """Watches the settling memory of ended processes.

    Args:
        own: bytes of each device, by UUID, that the driver takes for itself.
        on_settled: called once per watch with its number.
        on_ended: likewise, before that: the process has ended, so that the driver has freed what was its own; or
            nobody waits any longer for its end.
    """

    def __init__(
        self,
        executor: NvmlExecutor,
        own: Mapping[str, int],
        on_settled: Callable[[int], None],
        on_ended: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._executor = executor
        self._on_settled = on_settled
        self._on_ended = on_ended
        self._own = dict(own)
        self._unnamed: set[str] = set()  # devices whose driver does not report memory by process
        self._tasks = BackgroundTasks()

    def watch(self, number: int, process: int | None, used: Mapping[str, int], *, ending: int = 0) -> None:
        """Watch until the driver has freed the memory that session `number` used, in bytes per device.

        Takes over and closes the pidfd `process`. `ending`: its pid, if it is certain that it ends, however long that
        takes.
        """
        self._tasks.start(self._watch(number, process, tuple(used), ending))

    def set_own(self, device: str, own: int) -> None:
        """Set how many bytes of a device the driver takes for itself."""
        self._own[device] = own

    async def is_settled(self) -> bool:
        """Say whether all memory in use belongs to a process or to the driver itself, on every device."""
        return await self._is_free(tuple(self._own))

    async def _watch(self, number: int, process: int | None, devices: tuple[str, ...], ending: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            try:
                if process is not None:
                    await (_files_closed(process, ending) if ending else _end_of(process, MAX_SETTLING_TIME))
            finally:
                self._on_ended(number)
            deadline = loop.time() + MAX_SETTLING_TIME
            while loop.time() < deadline and not await self._is_free(devices):
                await asyncio.sleep(STEP)
        except TimeoutError:
            log.warning("a process whose connection ended lives on and may use memory that was granted to others")
        finally:
            if process is not None:
                os.close(process)
            self._on_settled(number)

    async def _is_free(self, devices: tuple[str, ...]) -> bool:
        return all(await asyncio.gather(*(self._is_free_on(device) for device in devices)))

    async def _is_free_on(self, device: str) -> bool:
        try:
            return await self._executor.ask(device, _measure_settling) <= self._own[device]
        except UnnamedError as error:
            if device not in self._unnamed:
                log.warning("settling on %s is known by the ends of processes alone: %s", device, error)
                self._unnamed.add(device)
            return True
        except DeviceError as error:
            log.warning("settling: %s", error)
            return False


def _measure_settling(devices: Devices, uuid: str) -> int:
    """Return the bytes in use that no process holds: settling, and the driver's own."""
    # Memory that is freed or allocated between the calls must not count as settled.
    before = devices.used_by(uuid)
    used = devices.used(uuid)
    after = devices.used_by(uuid)
    # Of small contexts twice as much may be listed for nobody: else each end would be waited for as long as possible.
    unlisted = min(2 * uncounted(before.values()), UNCOUNTED * len(before))
    return used - min(sum(before.values()), sum(after.values())) - unlisted


async def _files_closed(process: int, pid: int) -> None:
    """Wait, without a bound, until a process that is ending has closed its files.

    Its pidfd alone would not do: it tells of no end while somebody traces a thread that has ended, and does not wait
    for it.
    """
    loop = asyncio.get_running_loop()
    since, is_logged = loop.time(), False
    while is_exiting(pid):
        with suppress(TimeoutError):
            await _end_of(process, _LOOK)
            return
        if not is_logged and (is_logged := loop.time() - since > MAX_SETTLING_TIME):
            log.warning("pid %d does not come to its end: its container waits for the memory that it holds", pid)


async def _end_of(process: int, bound: float) -> None:
    """Wait for the end of the process behind a pidfd, for so many seconds at most.

    Also where the loop cannot watch it (epoll_ctl(2): ENOSPC).
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    async with asyncio.timeout(bound):
        try:
            loop.add_reader(process, lambda: None if ended.done() else ended.set_result(None))
        except OSError:
            while not has_ended(process):
                await asyncio.sleep(STEP)
            return
        try:
            await ended
        finally:
            loop.remove_reader(process)
