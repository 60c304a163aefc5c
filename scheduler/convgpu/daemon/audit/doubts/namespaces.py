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
from convgpu.daemon.audit.doubts.answers import Answered, Answers, Place, Places, Process
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

# The pids of a device that are in doubt, and the starts of the processes to ask about: whether they are containers'.
Doubts = Mapping[int, Mapping[int, bool]]


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
        self._wanted: dict[str, AbstractSet[Process]] = {}  # by device
        self._doubted: dict[str, AbstractSet[Process]] = {}  # likewise, those in doubt
        self._places: dict[Process, Place | None] = {}
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
        remembered: Mapping[str, AbstractSet[Process]] = MappingProxyType({}),
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
        due: dict[Process, tuple[bool, int]] = {}
        for sample in samples:
            for pid, starts in doubts.get(sample.device, {}).items():
                size, known = sample.listed_with(pid), self._known.get((sample.device, pid))
                if known is None or not known.is_still(size, list(starts)):
                    for start, is_containers in starts.items():
                        due[pid, start] = max((is_containers, size), due.get((pid, start), (False, 0)))
        answers = await self._answers(due)
        places = Places(self._places)
        return [self._complete(sample, doubts.get(sample.device, {}), answers, places) for sample in samples]

    async def _answers(self, due: Mapping[Process, tuple[bool, int]]) -> Answers:
        """Return what is told within the namespaces of processes; nothing if nobody can be asked."""
        if self._is_asking:
            return {}
        weights: dict[int, tuple[bool, int]] = {}
        pids: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for process, weight in due.items():
            if (place := self._places.get(process)) is not None:
                weights[place.inode] = max(weight, weights.get(place.inode, weight))
                pids[place.inode].add((place.pid, process[0]))
        before = self._turns = {inode: turn for inode, turn in self._turns.items() if inode in self._namespaces}

        def order(inode: int) -> tuple[bool, int, int]:
            """Containers' first: of strangers' there may be any number; then who was not asked for longest."""
            is_containers, size = weights.get(inode, (False, 0))
            return not is_containers, before.get(inode, 0), -size

        inodes = sorted(weights, key=order)[:_MOST]
        # Who asks stays where a doubt is, and is there before it asks: whoever comes is seen, and memory given back.
        places = (self._places.get(process) for process in set().union(*self._doubted.values()))
        others = {place.inode for place in places if place is not None} - set(inodes)
        staying = sorted(others, key=order)[: MOST_NAMESPACES - len(inodes)]
        told = dict(zip(inodes, await self._tell([(one, pids[one]) for one in inodes], staying), strict=False))
        self._asked += 1
        answers = {inode: answer for inode, answer in told.items() if not answer.has_come}
        self._turns = before | dict.fromkeys(answers if told else inodes, self._asked)  # of the others it is the turn
        return dict.fromkeys(weights) | answers if told else {}

    async def _tell(
        self, asked: Sequence[tuple[int, AbstractSet[tuple[int, int]]]], staying: Sequence[int]
    ) -> Sequence[NamespaceAnswer]:
        """Return the answers; none if nobody answers. Who hangs in the driver is not joined by another.

        Without namespaces who asks leaves them.

        Args:
            asked: the inodes of namespaces, with the pids of processes there and here.
            staying: those in which who asks stays.
        """
        if not (asked or staying or self._is_there):
            return ()
        self._is_there = bool(asked or staying)
        self._is_asking = True
        try:
            return await self._ask_devices(asked, staying)
        except UnnamedError as error:
            log.info("%s: what a program takes past the hook with the ID of a dead one can be nobody's", error)
            self._can_tell = False
        except TimeoutError:
            log.warning("NVML has not told within %g s what it lists within PID namespaces", _PATIENCE)
        except (DeviceError, OSError, RuntimeError) as error:  # no descriptors are left, or no thread can be started
            log.warning("%s", error)
        return ()

    async def _ask_devices(
        self, asked: Sequence[tuple[int, AbstractSet[tuple[int, int]]]], staying: Sequence[int]
    ) -> Sequence[NamespaceAnswer]:
        """Return the answers; see `_tell`, whose exceptions these are."""
        descriptors = list[int]()

        def end() -> None:
            while descriptors:
                os.close(descriptors.pop())
            self._is_asking = False

        def work() -> Sequence[NamespaceAnswer]:
            try:
                return self._devices.used_inside(questions)
            finally:
                end()

        try:
            questions = self._questions(asked, staying, descriptors)
            return await asyncio.wait_for(in_daemon_thread(work), _PATIENCE)
        except TimeoutError:  # it is at work still
            raise
        except (OSError, RuntimeError):
            end()
            raise

    def _questions(
        self,
        asked: Sequence[tuple[int, AbstractSet[tuple[int, int]]]],
        staying: Sequence[int],
        descriptors: list[int],
    ) -> list[NamespaceQuestion]:
        """Return questions; their descriptors are added, and are their own: who asks may be late, and ours closed."""
        questions = []
        for inode, pids in (*asked, *((inode, frozenset[tuple[int, int]]()) for inode in staying)):
            descriptors.append(os.dup(self._namespaces[inode]))
            inner, outer = sorted({row[0] for row in pids}), sorted({row[1] for row in pids})
            questions.append(NamespaceQuestion(descriptors[-1], inner, outer))
        return questions

    def _complete(self, sample: MemorySample, doubts: Doubts, answers: Answers, places: "Places") -> MemorySample:
        told: dict[int, Told] = {}
        answered = Answered(sample, answers, places)
        for pid, starts in doubts.items():
            size, known = sample.listed_with(pid), self._known.get((sample.device, pid))
            if known is not None and known.is_still(size, list(starts)):
                told[pid] = known.told
            elif (one := answered.told(pid, starts, known.figures if known else {})) is not None:
                told[pid] = one
                self._known[sample.device, pid] = _Known(size, list(starts), one)
        return replace(sample, told=told) if told else sample

    async def _remember(self) -> None:
        """Know where each process is that is wanted, as far as it can be known, and forget the others."""
        wanted: set[Process] = set().union(*self._wanted.values())
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


def _find(processes: Iterable[Process], own: int) -> dict[Process, tuple[Place | None, int]]:
    """Return where living processes are, with a descriptor; None: in our own namespace. Of others nothing is told."""
    found: dict[Process, tuple[Place | None, int]] = {}
    for pid, start in processes:
        descriptor = open_pid_namespace(pid)
        if descriptor is None:
            continue
        inode, pids = os.fstat(descriptor).st_ino, namespace_pids(pid)
        if pids and inode != own and start_time(pid) == start:
            found[pid, start] = Place(inode, pids[-1]), descriptor
            continue
        os.close(descriptor)
        if inode == own:
            found[pid, start] = None, -1
    return found
