"""Asks the driver within PID namespaces whose the memory is that it lists with one pid for several processes."""

import logging
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from heapq import nlargest
from pathlib import Path
from typing import Final

from convgpu.core.audit.attribution import MemorySample, Told
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import namespace_pids, start_time

log = logging.getLogger(__name__)

# Namespaces that are asked in one look, and processes that are remembered for that.
_MOST: Final = 8
_MOST_PLACES: Final = 256

# The pids of a device that are in doubt, and the starts of the processes to ask about.
Doubts = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a process is by itself.

    Attributes:
        descriptor: of its PID namespace.
        inode: of the same.
        pid: that it has there.
    """

    descriptor: int
    inode: int
    pid: int


@dataclass(frozen=True, slots=True)
class _Known:
    """What was told of a pid: when so much was listed with it, of these processes."""

    size: int
    starts: Sequence[int]
    told: Told

    def is_still(self, size: int, starts: Sequence[int]) -> bool:
        """Say whether nobody has to be asked again: all was of those asked about, and there is as much of it."""
        is_all = not self.told.others and not self.told.disturbed
        return is_all and (size, starts) == (self.size, self.starts)


class NamespaceQuestions:
    """Asks what each of several processes holds with whose pid the driver lists memory.

    Args:
        devices: answer; if they cannot, they are not asked again.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._own = Path("/proc/self/ns/pid").stat().st_ino
        self._places: dict[tuple[int, int], _Place] = {}  # by pid and start
        self._known: dict[tuple[str, int], _Known] = {}  # by device and pid
        self._can_tell = True

    async def ask(self, samples: Sequence[MemorySample], doubts: Mapping[str, Doubts]) -> list[MemorySample]:
        """Return samples with what the driver tells; as they are where it does not."""
        self._remember({(pid, start) for rows in doubts.values() for pid, own in rows.items() for start in own})
        self._known = {key: known for key, known in self._known.items() if key[1] in doubts.get(key[0], {})}
        due: dict[int, int] = {}
        for sample in samples:
            for pid, starts in doubts.get(sample.device, {}).items():
                size = sample.listed_with(pid)
                known = self._known.get((sample.device, pid))
                if known is None or not known.is_still(size, starts):
                    due[pid] = max(size, due.get(pid, 0))
        answers = await self._answers(due)
        return [self._complete(sample, doubts.get(sample.device, {}), answers) for sample in samples]

    async def _answers(self, due: Mapping[int, int]) -> Mapping[int, NamespaceAnswer]:
        """Return what is told within namespaces, by inode: of those with the largest of these pids, by size."""
        sizes: dict[int, int] = defaultdict(int)
        places: dict[int, list[tuple[int, _Place]]] = defaultdict(list)
        for (pid, _), place in self._places.items():
            if pid in due:
                sizes[place.inode] = max(sizes[place.inode], due[pid])
                places[place.inode].append((pid, place))
        inodes = nlargest(_MOST, sizes, key=sizes.__getitem__) if self._can_tell else []
        questions = [
            NamespaceQuestion(
                places[inode][0][1].descriptor,
                sorted({place.pid for _, place in places[inode]}),
                sorted({pid for pid, _ in places[inode]}),
            )
            for inode in inodes
        ]
        return dict(zip(inodes, await self._tell(questions), strict=False))

    async def _tell(self, questions: Sequence[NamespaceQuestion]) -> Sequence[NamespaceAnswer]:
        """Return the answers; none if nobody answers."""
        try:
            if questions:
                return await in_daemon_thread(lambda: self._devices.used_inside(questions))
        except UnnamedError as error:
            log.info("%s: what a program takes past the hook with the ID of a dead one can be nobody's", error)
            self._can_tell = False
        except DeviceError as error:
            log.warning("%s", error)
        return ()

    def _complete(self, sample: MemorySample, doubts: Doubts, answers: Mapping[int, NamespaceAnswer]) -> MemorySample:
        told: dict[int, Told] = {}
        for pid, starts in doubts.items():
            size, known = sample.listed_with(pid), self._known.get((sample.device, pid))
            if known is not None and known.is_still(size, starts):
                told[pid] = known.told
            elif (one := self._told(sample.device, pid, starts, answers)) is not None:
                told[pid] = one
                self._known[sample.device, pid] = _Known(size, starts, one)
        return replace(sample, told=told) if told else sample

    def _told(
        self, device: str, pid: int, starts: Sequence[int], answers: Mapping[int, NamespaceAnswer]
    ) -> Told | None:
        """Return what answers say of processes that have or had a pid; None: nothing."""
        own, least, disturbed = dict[int, int](), list[int](), set[int]()
        for start in starts:
            place = self._places.get((pid, start))
            answer = answers.get(place.inode) if place is not None else None
            if place is None or answer is None:
                continue
            if answer.most is not None and device in answer.most:
                own[start] = answer.most[device].get(place.pid, 0)
                least.append(answer.least.get(device, {}).get(pid, 0))
            elif answer.is_disturbed:
                disturbed.add(start)
        others = max(min(least, default=0) - sum(own.values()), 0)
        return Told(own, others, disturbed) if own or disturbed else None

    def _remember(self, wanted: AbstractSet[tuple[int, int]]) -> None:
        """Hold the namespaces of these processes, which can be asked about also when they have ended."""
        for key in self._places.keys() - wanted:
            os.close(self._places.pop(key).descriptor)
        for pid, start in wanted - self._places.keys():
            if len(self._places) < _MOST_PLACES and (place := _find(pid, start, self._own)) is not None:
                self._places[pid, start] = place

    def close(self) -> None:
        """Let go of all namespaces."""
        self._remember(frozenset())


def _find(pid: int, start: int, own: int) -> _Place | None:
    """Return where a living process is by itself; None: it has ended, or is in our own namespace."""
    try:
        descriptor = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    inode, pids = os.fstat(descriptor).st_ino, namespace_pids(pid)
    if not pids or inode == own or start_time(pid) != start:
        os.close(descriptor)
        return None
    return _Place(descriptor, inode, pids[-1])
