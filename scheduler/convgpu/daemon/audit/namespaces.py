"""Asks the driver within PID namespaces whose the memory is that it lists with one pid for several processes."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from convgpu.core.audit.attribution import MemorySample, Told
from convgpu.daemon.gpu.namespace_lists import MOST_NAMESPACES, NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import namespace_pids, open_pid_namespace, start_time

log = logging.getLogger(__name__)

# Namespaces that are asked in one look, the ones that were not asked for longest; processes that are remembered.
_MOST: Final = 32
_MOST_PROCESSES: Final = 4096
# Seconds for all answers; who asks gives up before.
_PATIENCE: Final = 4.0

# The pids of a device that are in doubt, and the starts of the processes to ask about.
Doubts = Mapping[int, Sequence[int]]
# What is told within namespaces, by inode; None: there was no time to ask there.
Answers = Mapping[int, NamespaceAnswer | None]
# A pid, and when its process started.
_Process = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a process is by itself: the inode of its PID namespace, and the pid that it has there."""

    inode: int
    pid: int


@dataclass(frozen=True, slots=True)
class _Known:
    """What was told of a pid: when so much was listed with it, of these processes."""

    size: int
    starts: Sequence[int]
    told: Told

    def is_still(self, size: int, starts: Sequence[int]) -> bool:
        """Say whether nobody has to be asked again: all was of the only one that was asked about, and is as much."""
        told = self.told
        is_all = len(self.starts) == 1 and not (told.others or told.disturbed or told.unasked)
        return is_all and (size, starts) == (self.size, self.starts)

    @property
    def figures(self) -> Mapping[int, int]:
        """What was told of each last, in bytes, by their starts."""
        return {start: size for start, size in self.told.unasked.items() if size is not None} | dict(self.told.own)


class NamespaceQuestions:
    """Asks what each of several processes holds with whose pid the driver lists memory.

    Remembers where processes are that use devices: they can be asked about also when they have ended.

    Args:
        devices: answer; if they cannot, they are not asked again.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._own = Path("/proc/self/ns/pid").stat().st_ino
        self._wanted: dict[str, AbstractSet[_Process]] = {}  # by device
        self._doubted: dict[str, AbstractSet[_Process]] = {}  # likewise, those in doubt
        self._places: dict[_Process, _Place | None] = {}
        self._namespaces: dict[int, int] = {}  # descriptors by inode
        self._turns: dict[int, int] = {}  # the number of the last question, by inode
        self._asked = 0
        self._known: dict[tuple[str, int], _Known] = {}  # by device and pid
        self._can_tell = True
        self._is_asking = False
        self._is_there = False  # who asks

    async def ask(
        self,
        samples: Sequence[MemorySample],
        doubts: Mapping[str, Doubts],
        remembered: Mapping[str, AbstractSet[_Process]] = MappingProxyType({}),
    ) -> list[MemorySample]:
        """Return samples with what the driver tells; as they are where it does not.

        Args:
            samples: of devices.
            doubts: by device, who has to be asked about.
            remembered: likewise, who may have to be later, though it has ended.
        """
        if not self._can_tell:
            return list(samples)
        for sample in samples:
            if sample.held is not None:
                rows = doubts.get(sample.device, {})
                asked = self._doubted[sample.device] = {(pid, start) for pid, each in rows.items() for start in each}
                self._wanted[sample.device] = {*sample.starts.items(), *remembered.get(sample.device, ()), *asked}
                kept = {key: known for key, known in self._known.items() if key[0] != sample.device or key[1] in rows}
                self._known = kept
        await self._remember()
        due: dict[_Process, int] = {}
        for sample in samples:
            for pid, starts in doubts.get(sample.device, {}).items():
                size, known = sample.listed_with(pid), self._known.get((sample.device, pid))
                if known is None or not known.is_still(size, starts):
                    due |= {(pid, start): max(size, due.get((pid, start), 0)) for start in starts}
        answers = await self._answers(due)
        return [self._complete(sample, doubts.get(sample.device, {}), answers) for sample in samples]

    async def _answers(self, due: Mapping[_Process, int]) -> Answers:
        """Return what is told within the namespaces of processes; nothing if nobody can be asked."""
        sizes: dict[int, int] = defaultdict(int)
        pids: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for process, size in due.items():
            if (place := self._places.get(process)) is not None:
                sizes[place.inode] = max(sizes[place.inode], size)
                pids[place.inode].add((place.pid, process[0]))
        if self._is_asking:
            return {}
        inodes = sorted(sizes, key=lambda inode: (self._turns.get(inode, 0), -sizes[inode]))[:_MOST]
        self._asked += 1
        before = self._turns = {inode: turn for inode, turn in self._turns.items() if inode in self._namespaces}
        self._turns = before | dict.fromkeys(inodes, self._asked)
        # Who asks stays where a doubt is: whoever comes there is seen, and memory given back for that moment.
        places = (self._places.get(process) for process in set().union(*self._doubted.values()))
        others = {place.inode for place in places if place is not None} - set(inodes)
        staying = sorted(others, key=lambda inode: -self._turns.get(inode, 0))[: MOST_NAMESPACES - len(inodes)]
        # Descriptors of their own: who asks may be late, and ours closed.
        questions = [
            NamespaceQuestion(
                os.dup(self._namespaces[inode]),
                sorted({inner for inner, _ in pids[inode]}),
                sorted({outer for _, outer in pids[inode]}),
            )
            for inode in inodes
        ]
        questions += [NamespaceQuestion(os.dup(self._namespaces[inode]), (), ()) for inode in staying]
        answers = dict(zip(inodes, await self._tell(questions), strict=False))
        if not answers:
            return {}
        self._turns |= {inode: before.get(inode, 0) for inode in inodes if inode not in answers}  # it is their turn
        return dict.fromkeys(sizes) | answers

    async def _tell(self, questions: Sequence[NamespaceQuestion]) -> Sequence[NamespaceAnswer]:
        """Return the answers; none if nobody answers. Who hangs in the driver is not joined by another.

        Without questions who asks leaves the namespaces.
        """
        if not questions and not self._is_there:
            return ()
        self._is_there = bool(questions)

        def end() -> None:
            for question in questions:
                os.close(question.namespace)
            self._is_asking = False

        def work() -> Sequence[NamespaceAnswer]:
            try:
                return self._devices.used_inside(questions)
            finally:
                end()

        self._is_asking = True
        try:
            return await asyncio.wait_for(in_daemon_thread(work), _PATIENCE)
        except UnnamedError as error:
            log.info("%s: what a program takes past the hook with the ID of a dead one can be nobody's", error)
            self._can_tell = False
        except DeviceError as error:
            log.warning("%s", error)
        except RuntimeError as error:  # no thread can be started
            log.warning("%s", error)
            end()
        except TimeoutError:
            log.warning("NVML has not told within %g s what it lists within PID namespaces", _PATIENCE)
        return ()

    def _complete(self, sample: MemorySample, doubts: Doubts, answers: Answers) -> MemorySample:
        told: dict[int, Told] = {}
        for pid, starts in doubts.items():
            size, known = sample.listed_with(pid), self._known.get((sample.device, pid))
            if known is not None and known.is_still(size, starts):
                told[pid] = known.told
            elif (one := self._told(sample, pid, starts, answers, known.figures if known else {})) is not None:
                told[pid] = one
                self._known[sample.device, pid] = _Known(size, starts, one)
        return replace(sample, told=told) if told else sample

    def _told(
        self,
        sample: MemorySample,
        pid: int,
        starts: Sequence[int],
        answers: Answers,
        before: Mapping[int, int],
    ) -> Told | None:
        """Return what answers say of processes that have or had a pid; None: nothing.

        Args:
            sample: of a device.
            pid: of all.
            starts: of those processes.
            answers: by namespace.
            before: what was told of them last.
        """
        own, least = dict[int, int](), list[int]()
        disturbed, unasked = set[int](), dict[int, int | None]()
        for start in starts:
            place = self._places.get((pid, start))
            if place is None or place.inode not in answers:
                continue
            answer = answers[place.inode]
            if answer is None:
                unasked[start] = before.get(start)
            elif answer.most is not None and sample.device in answer.most:
                own[start] = self._held_at(place, pid, sample, answers)
                least.append(answer.least.get(sample.device, {}).get(pid, 0))
            elif answer.is_disturbed:
                disturbed.add(start)
        others = max(min(least, default=0) - sum(own.values()), 0)
        return Told(own, others, disturbed, unasked) if own or disturbed or unasked else None

    def _held_at(self, place: _Place, pid: int, sample: MemorySample, answers: Answers) -> int:
        """Return what is told of a place, but for what is listed of it with another pid, which it had on the host."""
        size = _told_at(place, sample.device, answers) or 0
        for namesake in {each for (each, _), one in self._places.items() if one == place and each != pid}:
            # With that pid, others may be listed who are elsewhere.
            elsewhere = {one for (each, _), one in self._places.items() if each == namesake and one != place}
            theirs = [_told_at(one, sample.device, answers) for one in elsewhere]
            if None not in theirs:  # else it may all be theirs
                size -= max(sample.listed_with(namesake) - sum(each or 0 for each in theirs), 0)
        return max(size, 0)

    async def _remember(self) -> None:
        """Know where each process is that is wanted, as far as it can be known, and forget the others."""
        wanted: set[_Process] = set().union(*self._wanted.values())
        self._places = {process: place for process, place in self._places.items() if process in wanted}
        fresh = [each for each in wanted - self._places.keys() if each[1]][: _MOST_PROCESSES - len(self._places)]
        if fresh:
            found = await in_daemon_thread(lambda: _find(fresh, self._own))
            for process, (place, descriptor) in found.items():
                self._places[process] = place
                if place is not None and self._namespaces.setdefault(place.inode, descriptor) != descriptor:
                    os.close(descriptor)
        used = {place.inode for place in self._places.values() if place is not None}
        for inode in self._namespaces.keys() - used:
            os.close(self._namespaces.pop(inode))

    def close(self) -> None:
        """Let go of all namespaces."""
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces.clear()
        self._places.clear()


def _told_at(place: _Place | None, device: str, answers: Answers) -> int | None:
    """Return the bytes that are told of a place; None: nothing is."""
    answer = answers.get(place.inode) if place is not None else None
    if place is None or answer is None or answer.most is None:
        return None
    return answer.most.get(device, {}).get(place.pid, 0)


def _find(processes: Iterable[_Process], own: int) -> dict[_Process, tuple[_Place | None, int]]:
    """Return where living processes are, with a descriptor; None: in our own namespace. Of others nothing is told."""
    found: dict[_Process, tuple[_Place | None, int]] = {}
    for pid, start in processes:
        descriptor = open_pid_namespace(pid)
        if descriptor is None:
            continue
        inode, pids = os.fstat(descriptor).st_ino, namespace_pids(pid)
        if pids and inode != own and start_time(pid) == start:
            found[pid, start] = _Place(inode, pids[-1]), descriptor
            continue
        os.close(descriptor)
        if inode == own:
            found[pid, start] = None, -1
    return found
