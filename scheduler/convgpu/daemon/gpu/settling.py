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
from typing import Final

from convgpu.core.audit.attribution import UNCOUNTED
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.system.background_tasks import BackgroundTasks
from convgpu.daemon.system.procfs import has_ended

log = logging.getLogger(__name__)

STEP: Final = 0.01
# Seconds. Memory still in use after that must belong to another process, and the hook stops waiting for it.
MAX_SETTLING_TIME: Final = 10.0


class Settling:
    """Watches the settling memory of ended processes.

    Args:
        own: bytes of each device, by UUID, that the driver takes for itself.
        on_settled: called once per watch with its number.
        on_ended: likewise, before that: the process has ended, so that the driver has freed what was its own.
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

    def watch(self, number: int, process: int | None, used: Mapping[str, int], *, is_ending: bool = False) -> None:
        """Watch until the driver has freed the memory that session `number` used, in bytes per device.

        Takes over and closes the pidfd `process`. `is_ending`: it is certain that it ends, however long that takes.
        """
        self._tasks.start(self._watch(number, process, tuple(used), None if is_ending else MAX_SETTLING_TIME))

    def set_own(self, device: str, own: int) -> None:
        """Set how many bytes of a device the driver takes for itself."""
        self._own[device] = own

    async def is_settled(self) -> bool:
        """Say whether all memory in use belongs to a process or to the driver itself, on every device."""
        return await self._is_free(tuple(self._own))

    async def _watch(self, number: int, process: int | None, devices: tuple[str, ...], bound: float | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            if process is not None:
                await _end_of(process, bound)
            self._on_ended(number)
            deadline = loop.time() + MAX_SETTLING_TIME
            while loop.time() < deadline and not await self._is_free(devices):
                await asyncio.sleep(STEP)
        except TimeoutError:
            log.warning("a process whose connection ended lives on and may use memory that was granted to others")
        finally:
            self._on_ended(number)
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
    return used - min(sum(before.values()), sum(after.values())) - UNCOUNTED * len(before)


async def _end_of(process: int, bound: float | None) -> None:
    """Wait for the end of the process behind a pidfd, for so many seconds at most; None: without a bound.

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
