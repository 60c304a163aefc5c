"""Samples of the memory of devices, taken through NVML."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from convgpu.core.audit.attribution import MemorySample
from convgpu.core.audit.managed import Usages, complete, find_ownerless
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.system.mapping_walks import MappingWalks
from convgpu.daemon.system.procfs import is_alive, processes, start_time

# Less memory without an owner is not looked for.
_WORTH: Final = 64 << 20
# The part of the time in which all processes of containers are looked at.
_SHARE: Final = 0.02


class ManagedMemory:
    """Completes samples by what processes map of managed memory.

    Args:
        sessions: know what processes use.
        limited: says of a device which containers have a limit there.
        own: bytes by device that the driver takes for itself.
    """

    def __init__(
        self, sessions: SessionRegistry, limited: Callable[[str], Iterable[str]], own: Mapping[str, int]
    ) -> None:
        self._sessions = sessions
        self._limited = limited
        self._own = own
        self._listed = MappingWalks(math.inf)
        self._others = MappingWalks(_SHARE)

    async def complete(self, samples: Sequence[MemorySample], index: Callable[[], ProcessIndex]) -> list[MemorySample]:
        """Return the samples with the managed memory that nobody accounts for; mappings are read only if there is any.

        Args:
            samples: of one moment.
            index: makes an index of processes.
        """
        pids = {pid for sample in samples for pid in sample.held or {}}
        before = self._used(pids)
        missing = [device for device, size in find_ownerless(samples, before, self._own).items() if size > _WORTH]
        if not missing:
            self._listed.forget()
            self._others.forget()
            return list(samples)
        known = index()
        limited: dict[str, frozenset[str]] = {}
        for device in missing:
            limited |= {name: limited.get(name, frozenset()) | {device} for name in self._limited(device)}

        def listed() -> Iterable[tuple[int, frozenset[str]]]:
            return [(pid, frozenset[str]()) for pid in pids]

        def others() -> Iterable[tuple[int, frozenset[str]]]:
            """Who shares the address space of a process that is listed has its memory, also after its end."""
            for pid in processes():
                devices = limited.get(known.volume_of(pid) or "")
                if devices is not None and pid not in pids:
                    yield pid, devices

        found, more = await asyncio.gather(self._listed.read(listed), self._others.read(others))
        mapped = {**more, **found}
        # Read afterwards, too: what was allocated meanwhile is accounted for.
        now = self._used(pids)
        used = {key: max(before.get(key, 0), now.get(key, 0)) for key in before.keys() | now.keys()}
        living = {pid: one for pid, one in mapped.items() if start_time(pid) == one.start}
        return complete(samples, living, used, self._own)

    def _used(self, pids: set[int]) -> Usages:
        used: dict[tuple[int, str], int] = {}
        for session in self._sessions.by_number.values():
            if session.pid in pids:
                for device in session.rows:
                    key = session.pid, device
                    used[key] = used.get(key, 0) + self._sessions.used_by(session, device)
        return used


class DeviceSampler:
    """Takes samples of several devices.

    Args:
        executor: asks NVML.
        managed: completes what NVML says.
    """

    def __init__(self, executor: NvmlExecutor, managed: ManagedMemory) -> None:
        self._executor = executor
        self._managed = managed
        self._single: dict[str, tuple[MemorySample, asyncio.Task[list[MemorySample]]]] = {}  # the last by device

    async def take_one(self, device: str, index: Callable[[], ProcessIndex]) -> MemorySample:
        """Return a sample of one device; who asks at the same time gets the same one."""
        sample = await take_sample(self._executor, device)
        known = self._single.get(device)
        if known is None or known[0] is not sample:
            task = asyncio.get_running_loop().create_task(self._managed.complete([sample], index))
            known = self._single[device] = sample, task
        [completed] = await asyncio.shield(known[1])
        return completed

    async def take(self, devices: Iterable[str], index: Callable[[], ProcessIndex]) -> list[MemorySample]:
        """Return a sample of each device, with memory that NVML counts for no process."""
        samples = await asyncio.gather(*(take_sample(self._executor, uuid) for uuid in devices))
        return await self._managed.complete(samples, index)


async def take_sample(executor: NvmlExecutor, uuid: str) -> MemorySample:
    """Return a sample of one device; when NVML fails or does not answer in time, the sample carries the error."""
    try:
        return await executor.ask(uuid, sample_device)
    except DeviceError as error:
        return MemorySample(uuid, error=str(error))


def sample_device(devices: Devices, uuid: str) -> MemorySample:
    """Ask NVML about one device. It is no error when the driver does not tell which process holds what."""
    try:
        devices.check(uuid)
        total, used = devices.total(uuid), devices.used(uuid)
    except DeviceError as error:
        return MemorySample(uuid, error=str(error))
    try:
        held = devices.used_by(uuid)
    except DeviceError:
        return MemorySample(uuid, total, used)
    starts = {pid: start for pid in held if is_alive(pid) and (start := start_time(pid))}
    living = {pid: size for pid, size in held.items() if pid in starts}
    ended = {pid: size for pid, size in held.items() if pid not in starts}
    return MemorySample(uuid, total, used, living, ended=ended, starts=starts)
