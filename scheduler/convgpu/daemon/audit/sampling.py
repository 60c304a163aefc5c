"""Samples of the memory of devices, taken through NVML."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from heapq import nlargest
from typing import Final

from convgpu.core.audit.attribution import MemorySample
from convgpu.core.audit.managed import add_imported, complete, find_ownerless
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.system.mapping_walks import Candidates, MappingWalks
from convgpu.daemon.system.procfs import is_alive, is_exiting, processes, start_time, ticks_since_boot

# Less memory without an owner is not looked for.
_WORTH: Final = 64 << 20
# The part of the time in which all processes of containers are looked at.
_SHARE: Final = 0.02
# Of those that are found so, and not listed, the ones with most are looked at each time.
_MOST_OTHERS: Final = 64


class OwnerlessMemory:
    """Completes samples by what processes map of managed memory, and what they imported.

    Samples can be of some of the devices only, and overlap: what is known of processes is of all of them.

    Args:
        executor: asks who imported memory.
        sessions: know what processes use.
        limited: says of a device which containers have a limit there.
        own: bytes by device that the driver takes for itself.
        unseen: says of a device how many bytes are known to be of dead ones that nobody is listed with. Mappings may
            lie on the host: who has some is not charged with those.
    """

    def __init__(
        self,
        executor: NvmlExecutor,
        sessions: SessionRegistry,
        limited: Callable[[str], Iterable[str]],
        own: Mapping[str, int],
        unseen: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self._executor = executor
        self._sessions = sessions
        self._limited = limited
        self._own = own
        self._unseen = unseen
        self._listed: dict[str, AbstractSet[int]] = {}  # by device, in its last sample
        self._search = MappingWalks(_SHARE, self._used_by)
        self._reading = MappingWalks(math.inf, self._used_by)

    async def complete(self, samples: Sequence[MemorySample], index: Callable[[], ProcessIndex]) -> list[MemorySample]:
        """Return the samples with the memory that nobody accounts for; nobody is asked about it unless there is any.

        Args:
            samples: of one moment.
            index: makes an index of processes.
        """
        self._listed |= {sample.device: sample.held.keys() for sample in samples if sample.held is not None}
        own = {device: size + self._unseen(device) for device, size in self._own.items()}
        begun, before = asyncio.get_running_loop().time(), self._used()
        if all(size <= _WORTH for size in find_ownerless(samples, before, own).values()):
            return list(samples)
        others = await self._search.read(lambda: self._others(index()))
        largest = nlargest(_MOST_OTHERS, others.items(), key=lambda row: row[1].size)

        def candidates() -> Candidates:
            """Return who is listed, and who else was found: that may have started another program since (vfork)."""
            listed = self._devices()
            return [*listed.items(), *((pid, one.devices) for pid, one in largest if pid not in listed)]

        mapped = await self._reading.read(candidates)
        # Read afterwards, too: what was allocated meanwhile is accounted for.
        now = self._used()
        used = {pid: _most(before.get(pid, {}), now.get(pid, {})) for pid in before.keys() | now.keys()}
        starts = {pid: start for sample in samples for pid, start in sample.starts.items()}
        living = {pid: one for pid, one in mapped.items() if (starts.get(pid) or start_time(pid)) == one.start}
        completed = complete(samples, living, used, own, index().volume_of, begun)
        left = find_ownerless(completed, used, own)
        asked = [sample for sample in completed if left.get(sample.device, 0) > _WORTH]
        imported = {sample.device: await self._imported(sample.device, set(sample.held or {})) for sample in asked}
        return add_imported(completed, imported, used, own, index().volume_of) if imported else completed

    async def _imported(self, device: str, pids: AbstractSet[int]) -> Mapping[int, int]:
        """Return what these processes imported of a device's memory; nothing where the driver does not tell."""
        with suppress(DeviceError):
            return await self._executor.ask(device, lambda devices, uuid: devices.imported_by(uuid, pids))
        return {}

    def _devices(self) -> dict[int, frozenset[str]]:
        """Return where NVML lists processes, by pid."""
        found: dict[int, frozenset[str]] = {}
        for device, pids in self._listed.items():
            found |= {pid: found.get(pid, frozenset()) | {device} for pid in pids}
        return found

    def _others(self, index: ProcessIndex) -> Candidates:
        """Return all others of containers: who shares the address space of a program has its memory after its end."""
        listed, limited = self._devices(), dict[str, frozenset[str]]()
        for device in self._own:
            limited |= {name: limited.get(name, frozenset()) | {device} for name in self._limited(device)}

        def look() -> Candidates:
            for pid in processes():
                if pid not in listed and (devices := limited.get(index.volume_of(pid) or "")) is not None:
                    yield pid, devices

        return look()

    def _used(self) -> dict[int, dict[str, int]]:
        """Return what processes use that are listed: of a thousand that are connected few use memory."""
        listed: set[int] = set().union(*self._listed.values())
        used: dict[int, dict[str, int]] = {}
        for session in self._sessions.by_number.values():
            if session.pid in listed:
                row = used.setdefault(session.pid, {})
                row |= {uuid: row.get(uuid, 0) + self._sessions.used_by(session, uuid) for uuid in session.rows}
        return used

    def _used_by(self, pid: int) -> int:
        sessions = (session for session in self._sessions.by_number.values() if session.pid == pid)
        return sum(self._sessions.used_by(session, device) for session in sessions for device in session.rows)


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {device: max(one.get(device, 0), other.get(device, 0)) for device in one.keys() | other.keys()}


class DeviceSampler:
    """Takes samples of several devices.

    Args:
        executor: asks NVML.
        ownerless: completes what NVML says.
    """

    def __init__(self, executor: NvmlExecutor, ownerless: OwnerlessMemory) -> None:
        self._executor = executor
        self._ownerless = ownerless
        self._single: dict[str, tuple[MemorySample, asyncio.Task[list[MemorySample]]]] = {}  # the last by device

    async def take_one(self, device: str, index: Callable[[], ProcessIndex]) -> MemorySample:
        """Return a sample of one device; who asks at the same time gets the same one."""
        sample = await take_sample(self._executor, device)
        known = self._single.get(device)
        if known is None or known[0] is not sample:
            task = asyncio.get_running_loop().create_task(self._ownerless.complete([sample], index))
            known = self._single[device] = sample, task
        [completed] = await asyncio.shield(known[1])
        return completed

    async def take(self, devices: Iterable[str], index: Callable[[], ProcessIndex]) -> list[MemorySample]:
        """Return a sample of each device, with memory that NVML counts for no process."""
        samples = await asyncio.gather(*(take_sample(self._executor, uuid) for uuid in devices))
        return await self._ownerless.complete(samples, index)


async def take_sample(executor: NvmlExecutor, uuid: str) -> MemorySample:
    """Return a sample of one device; when NVML fails or does not answer in time, the sample carries the error."""
    try:
        return await executor.ask(uuid, sample_device)
    except DeviceError as error:
        return MemorySample(uuid, error=str(error))


def sample_device(devices: Devices, uuid: str) -> MemorySample:
    """Ask NVML about one device. It is no error when the driver does not tell which process holds what."""
    begun = time.monotonic()
    try:
        devices.check(uuid)
        total, used = devices.total(uuid), devices.used(uuid)
    except DeviceError as error:
        return MemorySample(uuid, error=str(error))
    try:
        held = devices.used_by(uuid)
        answered, asked = time.monotonic(), ticks_since_boot()  # who began later has the pid of one that is listed
        starts = {pid: start for pid in held if is_alive(pid) and 0 < (start := start_time(pid)) <= asked}
        exiting = {pid for pid in held if pid not in starts and is_exiting(pid)}
        # Who has ended since was listed with what it had then: only what is listed still is kept by others.
        still = devices.used_by(uuid) if len(starts) < len(held) else {}
        # What was freed is not in use, and nothing else is subtracted: it may have come after `used` was read.
        used = min(used, devices.used(uuid)) if len(starts) < len(held) else used
    except DeviceError:
        return MemorySample(uuid, total, used)
    living = {pid: size for pid, size in held.items() if pid in starts}
    ended = {pid: min(size, still[pid]) for pid, size in held.items() if pid not in starts and pid in still}
    sample = MemorySample(uuid, total, used, living, ended=ended, starts=starts, listed=living)
    return replace(sample, asked=begun, answered=answered, exiting=exiting)
