"""Searches containers' PID namespaces for memory of the dead whom nobody saw: without that it is nobody's.

A process can begin, take memory and end between two looks, or have nothing until it has ended: whoever has its
descriptor makes memory of it. Without a context NVML does not list it, either. The driver tells what is held with each
pid of a namespace, so all pids are asked about that there may be; and whoever is not alive is of the container whose
namespace it is (decision 204). Which of the dead are known already is no matter: the container is charged with what all
of them hold together, beyond what it is charged with already.

Four million pids take long where many use the driver. So a search begins at random, goes on where the last one was at
its end, and asks again about those that were found.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Final, TypeVar

from convgpu.core.audit.attribution import ALL, Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.gpu.namespace_lists import MOST_NAMESPACES, NO_IDS, OVER, NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import (
    containers_of,
    is_alive,
    is_running,
    namespace_pids,
    open_pid_namespace,
    pid_namespace,
    processes,
    start_time,
    ticks_since_boot,
    user,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

# Bytes that are nobody's; less is not searched for, and no other figure for that is a smaller change.
_WORTH: Final = 64 << 20
# Seconds between two searches at least, and at most while they find the same; and for which it goes on when nothing is
# nobody's any more.
_PAUSE: Final = 0.5
_LONGEST: Final = 30.0
_LINGER: Final = 60.0
# Seconds after a search that failed.
_FAILED: Final = 10.0
# Answers in a row that told nothing, after which what was found before is not held against a container any more.
_MISSES: Final = 3
# Pids are given to so many more processes while we ask; and the kernel gives none from here on (PID_MAX_LIMIT). Since
# Linux 6.14 each PID namespace has a bound of its own, and that of the host says nothing.
_MORE: Final = 4096
_MOST: Final = 1 << 22
# Dead ones of a container that are asked about again wherever the search is; those that hold most.
_MOST_AGAIN: Final = 1024
# Seconds for which a process of the host may be within a namespace: a runtime's is on its way into the container.
_PASSING: Final = 1.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FORKS: Final = re.compile(r"^processes (\d+)$", re.MULTILINE)
_random: Final = SystemRandom()


@dataclass(slots=True)
class _Namespace:
    """The outermost PID namespace of a container, as a look finds it.

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
        descriptor: of the namespace; while it is open, no other one gets this one's inode.
        is_through: all pids were searched since something changed, or could not be, or nobody waits for it.
        turn: the number of the last search there.
        at: the pid with which the next one begins.
        left: pids that were not searched since they were begun with.
        pids: of dead ones that held memory then; who held most is first.
        sizes: bytes by device of those that held memory before that, too.
        is_disturbed: whoever asked was ended or stopped there.
        misses: answers in a row that told nothing.
    """

    owner: Owner
    descriptor: int
    is_through: bool
    turn: int = 0
    at: int = 0
    left: int = 0
    pids: Sequence[int] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    is_disturbed: bool = False
    misses: int = 0

    def ask(self, descriptor: int, most: int) -> NamespaceQuestion:
        """Return the next question, about pids below `most`; it begins at random, so nobody knows when his turn is."""
        if self.left <= 0:
            self.at, self.left = _random.randrange(most), most
        return NamespaceQuestion(descriptor, sorted(self.pids[:_MOST_AGAIN]), [], most, self.at % most)

    def take(self, question: NamespaceQuestion, answer: NamespaceAnswer, living: AbstractSet[int]) -> bool:
        """Follow an answer; say whether it tells anything new. Who was found before, and is not alive, is dead."""
        before = set(self.pids), self.sizes, self.is_disturbed
        if answer.is_disturbed or answer.most is not None:
            self.misses, self.is_disturbed = 0, answer.is_disturbed
        elif (misses := self.misses + 1) > _MISSES:
            self.pids, self.sizes, self.is_disturbed = (), {}, False
        else:
            self.misses = misses
        if answer.most is not None:
            rows = {device: _of_others(each, living) for device, each in answer.most.items()}
            again = set(self.pids)
            sizes = {device: sum(each[pid] for pid in each.keys() & again) for device, each in rows.items()}
            self.sizes = {device: size for device, size in sizes.items() if size}
            dead = sorted(((size, pid) for each in rows.values() for pid, size in each.items()), reverse=True)
            self.pids = list(dict.fromkeys(pid for _, pid in dead))
            self.at, self.left = question.first + answer.searched, self.left - answer.searched
        if not answer.has_come and (answer.most is None or self.left <= 0):
            self.is_through = True
        return before != (set(self.pids), self.sizes, self.is_disturbed)


class UnseenMemory:
    """Searches while some memory is nobody's, or was; nobody waits for it.

    Args:
        devices: answer; if they cannot, they are not asked again.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._own = Path("/proc/self/ns/pid").stat().st_ino
        self._index: ProcessIndex | None = None
        self._nobodys: Mapping[str, int] = {}  # when it changed last
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._known: dict[int, _Known] = {}  # by inode
        self._searches = 0
        self._pause = _PAUSE
        self._changed = asyncio.Event()
        self._troubles: AbstractSet[str] = frozenset()
        self._can_tell = True

    def follow(self, nobodys: Mapping[str, int], index: ProcessIndex) -> None:
        """Search, if it is worth it.

        Args:
            nobodys: bytes by device, and those that only a search told to be somebody's.
            index: tells the containers' processes.
        """
        now = asyncio.get_running_loop().time()
        self._index = index
        if any(abs(nobodys.get(each, 0) - self._nobodys.get(each, 0)) > _WORTH for each in {*nobodys, *self._nobodys}):
            self._nobodys = dict(nobodys)
            self._begin_anew()
            self._changed.set()
        if any(size > _WORTH for size in nobodys.values()):
            self._until = now + _LINGER
        if self._can_tell and now < self._until and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def found(self, device: str) -> Mapping[Owner, int]:
        """Return what the dead of each container hold of a device, in bytes, whether or not anybody saw them.

        Who disturbs a search has all that is nobody's (`ALL`).
        """
        known = self._known.values()
        sizes = [(one.owner, ALL if one.is_disturbed else one.sizes.get(device, 0)) for one in known]
        return {owner: size for owner, size in sizes if size}

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while (begun := clock()) < self._until and self._can_tell:
            pause, more = _FAILED, 0.0
            self._changed.clear()
            try:
                more = self._rest() if await self._search() else 0.0
                pause = _PAUSE
            except UnnamedError as error:
                log.info("%s: memory of a dead process that nobody saw alive stays nobody's", error)
                self._can_tell = False
                break
            except (DeviceError, OSError, RuntimeError) as error:  # no descriptors are left, or no thread can be begun
                log.warning("memory of dead processes that nobody saw is searched for in %g s: %s", _FAILED, error)
                self._forget()
            except Exception:  # a fault here must not go unseen
                log.exception("memory of dead processes that nobody saw is searched for in %g s", _FAILED)
                self._forget()
            await asyncio.sleep(max(pause, clock() - begun))  # at most half of the time
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), more)
        self._forget()
        with suppress(DeviceError, OSError, RuntimeError):
            await in_daemon_thread(lambda: self._devices.search_inside([]))

    async def _search(self) -> bool:
        """Search once; say whether all pids of all namespaces were searched, and nothing is as it was not before."""
        index = self._index
        if index is None:
            return False
        there = await in_daemon_thread(lambda: _find(index, self._own))
        self._meet(there)
        # Those first that were not asked for longest: there may be no time for all.
        chosen = sorted(there, key=lambda inode: (self._known[inode].turn, inode))[:MOST_NAMESPACES]
        questions, told = await self._ask(chosen) if chosen else ((), ())
        self._searches += 1
        is_new = False
        for inode, question, answer in zip(chosen, questions, told, strict=False):
            known = self._known[inode]
            is_new |= known.take(question, answer, there[inode].living)
            known.turn = known.turn if answer.has_come else self._searches
        self._say({answer.trouble for answer in told})
        if is_new:
            self._begin_anew()
        is_told = not chosen or any(not answer.has_come for answer in told)
        return is_told and all(one.is_through for one in self._known.values())

    def _meet(self, there: Mapping[int, _Namespace]) -> None:
        """Know these namespaces and no others; of each one descriptor stays open."""
        for inode in self._known.keys() - there.keys():
            os.close(self._known.pop(inode).descriptor)
        is_first = not self._known  # where others are known, nobody waits for one that came since
        for inode, one in there.items():
            known = self._known.setdefault(inode, _Known(one.owner, one.descriptor, is_through=not is_first))
            known.owner = one.owner
            if known.descriptor != one.descriptor:
                os.close(one.descriptor)

    async def _ask(self, chosen: Sequence[int]) -> tuple[Sequence[NamespaceQuestion], Sequence[NamespaceAnswer]]:
        """Return questions about namespaces, and the answers. Who asks may be late, and has descriptors of its own."""
        most, descriptors = _most_pids(), list[int]()

        def end() -> None:
            while descriptors:
                os.close(descriptors.pop())

        def work() -> Sequence[NamespaceAnswer]:
            try:
                return self._devices.search_inside(questions)
            finally:
                end()

        try:
            for inode in chosen:
                descriptors.append(os.dup(self._known[inode].descriptor))
            rows = zip(chosen, descriptors, strict=True)
            questions = [self._known[inode].ask(descriptor, most) for inode, descriptor in rows]
            return questions, await in_daemon_thread(work)
        except (OSError, RuntimeError):  # a thread may not have begun
            end()
            raise

    def _say(self, troubles: AbstractSet[str]) -> None:
        """Log once what keeps anybody from being asked."""
        for trouble in sorted(troubles - self._troubles - {"", OVER}):
            log.warning("memory of dead processes that nobody saw is not found in some containers: %s", trouble)
        self._troubles = troubles

    def _rest(self) -> float:
        """Return the seconds to wait more than after other searches: twice as many each time that nothing is new."""
        self._pause = min(2 * self._pause, _LONGEST)
        for one in self._known.values():
            one.is_through = False
        return self._pause - _PAUSE

    def _begin_anew(self) -> None:
        self._pause = _PAUSE
        for one in self._known.values():
            one.is_through = False

    def _forget(self) -> None:
        for one in self._known.values():
            os.close(one.descriptor)
        self._known = {}

    def close(self) -> None:
        """Search no more."""
        if self._task is not None:
            self._task.cancel()
        self._forget()


def _of_others(rows: Mapping[int, int], living: AbstractSet[int]) -> dict[int, int]:
    return {pid: size for pid, size in rows.items() if size and pid not in living}


def _find(index: ProcessIndex, own: int) -> dict[int, _Namespace]:
    """Return the namespaces of containers by their inodes; those are left out that others are in, too, or we."""
    numbers, shared = _look(index)
    found = dict[int, _Namespace]()
    try:
        for container, rows in numbers.items():
            depth = min(len(pids) for pids in rows.values())
            outermost = [pid for pid, pids in rows.items() if len(pids) == depth]
            if (volume := index.by_id.get(container)) is None:
                shared.add(_first_told(pid_namespace, outermost))
            elif (descriptor := _first_told(open_pid_namespace, outermost)) is not None:
                # Who has ended and is not waited for (a zombie) is among the dead.
                inode, living = (
                    os.fstat(descriptor).st_ino,
                    {row[depth - 1] for pid, row in rows.items() if is_alive(pid)},
                )
                if inode in found:
                    shared.add(inode)
                    os.close(descriptor)
                else:
                    found[inode] = _Namespace(Owner(volume, container), descriptor, living)
    except BaseException:
        shared |= found.keys()
        raise
    finally:
        for inode in found.keys() & (shared | {own}):
            os.close(found.pop(inode).descriptor)
    return found


def _first_told(tell: Callable[[int], T | None], pids: Iterable[int]) -> T | None:
    """Return what is told of the first of these processes that does not keep the kernel from telling."""
    return next((told for pid in pids if (told := tell(pid)) is not None), None)


def _look(index: ProcessIndex) -> tuple[dict[str, dict[int, Sequence[int]]], set[int | None]]:
    """Return the pids that processes of each container have in each namespace, and where processes of the host are."""
    numbers: dict[str, dict[int, Sequence[int]]] = {}
    shared = set[int | None]()
    for pid in processes():
        # A runtime's own, on its way into a container, is in our namespace still.
        if len(pids := namespace_pids(pid)) > 1:
            container = index.outermost(containers_of(pid))
            if container is not None:
                numbers.setdefault(container, {})[pid] = pids
            elif _stays(pid):
                shared.add(pid_namespace(pid))
    return numbers, shared


def _stays(pid: int) -> bool:
    """Say whether a process of the host lives within a namespace: not ours, nor a runtime's on its way.

    Who has ended may be a container's: under cgroup v1 it has no cgroup any more.
    """
    is_old = ticks_since_boot() - start_time(pid) > _PASSING * _TICKS
    return is_old and user(pid) not in NO_IDS and is_running(pid) is True


def _most_pids() -> int:
    """Return a number above all pids: as many processes as began since the machine did, at most (proc_stat(5))."""
    begun = _FORKS.search(Path("/proc/stat").read_text())
    return min(_MOST, int(begun[1]) + _MORE) if begun else _MOST
