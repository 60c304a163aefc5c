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
# Pids are given to so many more processes while we ask.
_MORE: Final = 4096
_FORKS: Final = re.compile(r"^processes (\d+)$", re.MULTILINE)


class KnownPlaces(Protocol):
    """Knows where processes are that are listed."""

    def known_at(self, inode: int) -> AbstractSet[int]:
        """Return the pids that they have in a PID namespace, also of the dead."""
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
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._found: dict[str, dict[Owner, int]] = {}  # by device
        self._before: dict[int, set[int]] = {}  # pids that held memory in the last answer, by inode
        self._can_tell = True

    def follow(self, nobodys: Mapping[str, int], index: ProcessIndex) -> None:
        """Search, if it is worth it.

        Args:
            nobodys: bytes by device.
            index: tells the containers' processes.
        """
        now = asyncio.get_running_loop().time()
        self._index, self._nobodys = index, dict(nobodys)
        if self._found or any(size > _WORTH for size in nobodys.values()):
            self._until = now + _LINGER
        if self._can_tell and now < self._until and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def found(self, device: str) -> Mapping[Owner, int]:
        """Return what each container holds of a device by dead processes that nobody saw, in bytes."""
        return self._found.get(device, {})

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while (begun := clock()) < self._until:
                await self._search()
                # At most half of the time.
                await asyncio.sleep(max(_PAUSE, clock() - begun))
        except UnnamedError as error:
            log.info("%s: memory of a dead process that nobody saw alive stays nobody's", error)
            self._can_tell = False
        except (DeviceError, OSError, RuntimeError) as error:  # no descriptors are left, or no thread can be started
            log.warning("%s", error)
        except Exception:  # a fault here must not go unseen
            log.exception("memory of dead processes that nobody saw is not searched for")
        self._found, self._before = {}, {}
        with suppress(DeviceError, OSError, RuntimeError):
            await in_daemon_thread(lambda: self._devices.search_inside([]))

    async def _search(self) -> None:
        """Search once. What is found twice, and was not alive in between, is kept after its process's end."""
        index = self._index
        if index is None:
            return
        there = await in_daemon_thread(lambda: _find(index, self._own))
        try:
            chosen = sorted(there)[:MOST_NAMESPACES]
            most = _most_pids()
            questions = [NamespaceQuestion(there[inode].descriptor, [], [], most) for inode in chosen]
            told = await in_daemon_thread(lambda: self._devices.search_inside(questions)) if questions else ()
        finally:
            for one in there.values():
                os.close(one.descriptor)
        answers = dict(zip(chosen, told, strict=False))
        self._found = self._judge(there, answers)
        self._before = {
            inode: {pid for rows in answer.most.values() for pid in rows}
            for inode, answer in answers.items()
            if answer.most is not None
        }

    def _judge(
        self, there: Mapping[int, _Namespace], answers: Mapping[int, NamespaceAnswer]
    ) -> dict[str, dict[Owner, int]]:
        found: dict[str, dict[Owner, int]] = {}
        for inode, answer in answers.items():
            one = there[inode]
            dead = self._before.get(inode, set()) - one.living - self._places.known_at(inode)
            for device, rows in (answer.most or {}).items():
                if size := sum(rows.get(pid, 0) for pid in dead):
                    found.setdefault(device, {})[one.owner] = size
            if answer.is_disturbed:  # each time: who asked was ended or stopped there
                for device, size in self._nobodys.items():
                    found.setdefault(device, {})[one.owner] = size
        return found

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
