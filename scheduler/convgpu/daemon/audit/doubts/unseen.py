"""Searches containers' PID namespaces for memory of the dead whom nobody saw: without that it is nobody's.

A process can begin, take memory and end between two looks, or have nothing until it has ended: whoever has its
descriptor makes memory of it. Without a context NVML does not list it, either. The driver tells what is held with each
pid of a namespace, so all pids are asked about that there may be; and whoever is not alive and not known is of the
container whose namespace it is (decision 204).
"""

import asyncio
import logging
import os
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts.answers import Process
from convgpu.daemon.gpu.namespace_lists import MOST_NAMESPACES, NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import containers_of, namespace_pids, open_pid_namespace, processes

log = logging.getLogger(__name__)

# Bytes that are nobody's; less is not searched for.
_WORTH: Final = 64 << 20
# Seconds between two searches at least, and for which it goes on when nothing is nobody's any more.
_PAUSE: Final = 0.5
_LINGER: Final = 60.0
# Seconds after a search that failed.
_FAILED: Final = 10.0
# Pids are given to so many more processes while we ask.
_MORE: Final = 4096
_FORKS: Final = re.compile(r"^processes (\d+)$", re.MULTILINE)


class KnownPlaces(Protocol):
    """Knows where processes are that are listed."""

    def known_at(self, inode: int, unowned: AbstractSet[Process]) -> AbstractSet[int]:
        """Return the pids that they have in a PID namespace, also of the dead, but of those who are nobody's."""
        ...


@dataclass(slots=True)
class _Namespace:
    """The outermost PID namespace of a container.

    Attributes:
        owner: the container.
        descriptor: of the namespace.
        living: the pids of its processes there.
    """

    owner: Owner
    descriptor: int
    living: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Known:
    """What is known of a namespace.

    Attributes:
        owner: the container.
        turn: the number of the last search there.
        pids: that held memory then.
        sizes: bytes by device of the dead ones that held memory before that, too.
    """

    owner: Owner
    turn: int = 0
    pids: set[int] = field(default_factory=set)
    sizes: Mapping[str, int] = field(default_factory=dict)


class UnseenMemory:
    """Searches while some memory is nobody's, or was; nobody waits for it.

    Args:
        devices: answer; if they cannot, they are not asked again.
        places: of those that need not be searched for.
    """

    def __init__(self, devices: Devices, places: KnownPlaces) -> None:
        self._devices = devices
        self._places = places
        self._own = Path("/proc/self/ns/pid").stat().st_ino
        self._index: ProcessIndex | None = None
        self._nobodys: Mapping[str, int] = {}
        self._unowned: AbstractSet[Process] = frozenset()
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._known: dict[int, _Known] = {}  # by inode
        self._searches = 0
        self._can_tell = True

    def follow(
        self, nobodys: Mapping[str, int], index: ProcessIndex, unowned: AbstractSet[Process] = frozenset()
    ) -> None:
        """Search, if it is worth it.

        Args:
            nobodys: bytes by device.
            index: tells the containers' processes.
            unowned: those of whom nobody knows whose they are, though they were seen.
        """
        now = asyncio.get_running_loop().time()
        self._index, self._nobodys, self._unowned = index, dict(nobodys), unowned
        sizes = [size for one in self._known.values() for size in one.sizes.values()]
        if any(sizes) or any(size > _WORTH for size in nobodys.values()):
            self._until = now + _LINGER
        if self._can_tell and now < self._until and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def found(self, device: str) -> Mapping[Owner, int]:
        """Return what each container holds of a device by dead processes that nobody saw, in bytes."""
        return {one.owner: one.sizes[device] for one in self._known.values() if one.sizes.get(device)}

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while (begun := clock()) < self._until and self._can_tell:
            pause = _PAUSE
            try:
                await self._search()
            except UnnamedError as error:
                log.info("%s: memory of a dead process that nobody saw alive stays nobody's", error)
                self._can_tell = False
            except (DeviceError, OSError, RuntimeError) as error:  # no descriptors are left, or no thread can be begun
                log.warning("memory of dead processes that nobody saw is searched for in %g s: %s", _FAILED, error)
                self._known, pause = {}, _FAILED
            except Exception:  # a fault here must not go unseen
                log.exception("memory of dead processes that nobody saw is searched for in %g s", _FAILED)
                self._known, pause = {}, _FAILED
            # At most half of the time.
            await asyncio.sleep(max(pause, clock() - begun) if self._can_tell else 0)
        self._known = {}
        with suppress(DeviceError, OSError, RuntimeError):
            await in_daemon_thread(lambda: self._devices.search_inside([]))

    async def _search(self) -> None:
        """Search once. What is found twice, and was not alive in between, is kept after its process's end."""
        index = self._index
        if index is None:
            return
        there = await in_daemon_thread(lambda: _find(index, self._own))
        try:
            before = {inode: one for inode, one in self._known.items() if inode in there}
            self._known = {inode: _Known(one.owner) for inode, one in there.items()} | before
            # Those first that were not asked for longest: there may be no time for all.
            chosen = sorted(there, key=lambda inode: (self._known[inode].turn, inode))[:MOST_NAMESPACES]
            most = _most_pids()
            questions = [NamespaceQuestion(there[inode].descriptor, [], [], most) for inode in chosen]
            told = await in_daemon_thread(lambda: self._devices.search_inside(questions)) if questions else ()
        finally:
            for one in there.values():
                os.close(one.descriptor)
        self._searches += 1
        for inode, answer in zip(chosen, told, strict=False):
            if not answer.has_come:
                self._known[inode] = self._judge(inode, there[inode], answer)

    def _judge(self, inode: int, one: _Namespace, answer: NamespaceAnswer) -> _Known:
        """Return what is known of a namespace by an answer."""
        known = _Known(one.owner, self._searches)
        if answer.is_disturbed:  # each time: who asked was ended or stopped there
            devices = self._nobodys.keys() | {device for each in self._known.values() for device in each.sizes}
            known.sizes = {each: self._nobodys.get(each, 0) + sum(self.found(each).values()) for each in devices}
        elif answer.most is not None:
            dead = self._known[inode].pids - one.living - self._places.known_at(inode, self._unowned)
            known.sizes = {device: sum(rows.get(pid, 0) for pid in dead) for device, rows in answer.most.items()}
            known.pids = {pid for rows in answer.most.values() for pid in rows}
        return known

    def close(self) -> None:
        """Search no more."""
        if self._task is not None:
            self._task.cancel()


def _find(index: ProcessIndex, own: int) -> dict[int, _Namespace]:
    """Return the namespaces of containers by their inodes; those are left out that two share, or we are in."""
    numbers: dict[Owner, dict[int, Sequence[int]]] = {}
    for pid in processes():
        container = index.outermost(containers_of(pid))
        volume = index.by_id.get(container or "")
        # A runtime's own, on its way into a container, is in our namespace still.
        if volume is not None and len(pids := namespace_pids(pid)) > 1:
            numbers.setdefault(Owner(volume, container), {})[pid] = pids
    found, shared = dict[int, _Namespace](), {own}
    for owner, rows in numbers.items():
        depth = min(len(pids) for pids in rows.values())
        first = next(pid for pid, pids in rows.items() if len(pids) == depth)
        if (descriptor := open_pid_namespace(first)) is None:
            continue
        inode = os.fstat(descriptor).st_ino
        if inode in found or inode in shared:
            shared.add(inode)
            os.close(descriptor)
            continue
        found[inode] = _Namespace(owner, descriptor, {pids[depth - 1] for pids in rows.values()})
    for inode in shared & found.keys():
        os.close(found.pop(inode).descriptor)
    return found


def _most_pids() -> int:
    """Return a number above all pids: as many processes as began since the machine did, at most (proc_stat(5))."""
    begun = _FORKS.search(Path("/proc/stat").read_text())
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    return min(most, int(begun[1]) + _MORE) if begun else most
