"""Searches containers' PID namespaces for memory of the dead whom nobody saw: without that it is nobody's.

A process can begin, take memory and end between two looks, or have nothing until it has ended: whoever has its
descriptor makes memory of it. Without a context NVML does not list it, either. The driver tells what is held with each
pid of a namespace, so all pids are asked about that there may be; and whoever is not alive is of the container whose
namespace it is (decision 204). Which of the dead are known already is no matter: the container is charged with what all
of them hold together, beyond what it is charged with already.

Who began since it was looked who lives would be taken for dead. So after a search it is looked once more, and what
those hold then that are not alive, is asked again: the kernel ends a process only when the driver has freed what nobody
keeps. And it counts as far as two of the last three searches found as much, the last one among them, whoever it was of:
a program that ends with what it has, and a child that keeps that for a moment, may be followed by the next ones without
end. But what was found may be gone a moment later, and would be claimed from what is nobody's of others.

Four million pids take long where many use the driver. So a search begins at random, goes on where the last one was at
its end, and asks again about those that were found.
"""

import asyncio
import logging
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Final

from convgpu.core.audit.attribution import ALL, Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts.places import Namespace, Unended, find_namespaces, most_pids, unended_in
from convgpu.daemon.gpu.namespace_lists import MOST_NAMESPACES, OVER, NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread

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
# Dead ones of a container that are asked about again wherever the search is; those that hold most.
_MOST_AGAIN: Final = 1024
# Those that are asked about after a search: for more there is no time (`namespace_program`).
_MOST_FOUND: Final = 4096
# Seconds for which somebody waits for what is asked once more; then what was found counts.
_PATIENCE: Final = 1.0
# Searches of which two count.
_LOOKS: Final = 3
_NOBODY: Final = NamespaceAnswer({})
_random: Final = SystemRandom()


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
        totals: what all of them held, in bytes by device, of the last searches.
        sizes: what two of those found, and the last one, likewise.
        is_disturbed: whoever asked was ended or stopped there.
        misses: answers in a row that told nothing.
        told: when the last search began that told something, in seconds of `time.monotonic`.
    """

    owner: Owner
    descriptor: int
    is_through: bool
    turn: int = 0
    at: int = 0
    left: int = 0
    pids: Sequence[int] = ()
    totals: deque[Mapping[str, int]] = field(default_factory=lambda: deque(maxlen=_LOOKS))
    sizes: Mapping[str, int] = field(default_factory=dict)
    is_disturbed: bool = False
    misses: int = 0
    told: float = -math.inf

    def ask(self, descriptor: int, most: int) -> NamespaceQuestion:
        """Return the next question, about pids below `most`; it begins at random, so nobody knows when his turn is."""
        if self.left <= 0:
            self.at, self.left = _random.randrange(most), most
        return NamespaceQuestion(descriptor, sorted(self.pids[:_MOST_AGAIN]), [], most, self.at % most)

    def take(
        self,
        question: NamespaceQuestion,
        answer: NamespaceAnswer,
        kept: NamespaceAnswer,
        exiting: AbstractSet[int],
        begun: float,
    ) -> bool:
        """Follow an answer; say whether it tells anything new.

        Args:
            question: that was asked.
            answer: to it.
            kept: what those hold that were found by it, and are not alive.
            exiting: of those, who may hold it for a moment only; they count if they did before.
            begun: when the search began.
        """
        before = self._found()
        told = answer if answer.most is None else kept
        if told.is_disturbed or told.most is not None:
            self.misses, self.is_disturbed = 0, told.is_disturbed
        elif (misses := self.misses + 1) > _MISSES:
            self.pids, self.sizes, self.is_disturbed = (), {}, False
            self.totals.clear()
        else:
            self.misses = misses
        if told.most is not None:
            self.told = begun
            brief = exiting - set(self.pids)
            rows = {device: [each[pid] for pid in each.keys() - brief] for device, each in told.most.items()}
            self.totals.append({device: sum(each) for device, each in rows.items()})
            last = self.totals[-1]
            found = {device: min(size, last.get(device, 0)) for device, size in _found_twice(self.totals).items()}
            self.sizes = {device: size for device, size in found.items() if size}
            dead = sorted(((size, pid) for each in told.most.values() for pid, size in each.items()), reverse=True)
            self.pids = list(dict.fromkeys(pid for _, pid in dead))
            self.at, self.left = question.first + answer.searched, self.left - answer.searched
        if not told.has_come and (told.most is None or self.left <= 0):
            self.is_through = True
        return before != self._found()

    def _found(self) -> tuple[object, ...]:
        return set(self.pids), list(self.totals)[-1:], self.sizes, self.is_disturbed


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
        self._asking = threading.Lock()  # held by the threads that ask: who waits for one may go
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

    def found_since(self, volume: str, device: str, since: float) -> int | None:
        """Return what the dead of a volume's containers hold by searches that began after a time; None: none told yet.

        Args:
            volume: name.
            device: UUID.
            since: seconds of `time.monotonic`.
        """
        known = [one for one in self._known.values() if one.owner.volume == volume]
        if any(one.told <= since for one in known):
            return None
        return sum(one.sizes.get(device, 0) for one in known)

    async def confirm(self, device: str) -> Mapping[Owner, int]:
        """Ask those once more whom a search found, and no others; return what of it they hold still, as `found` does.

        Where nobody tells in time, it is as it was found.
        """
        found, index = self.found(device), self._index
        holding = {inode: one.pids for inode, one in self._known.items() if one.sizes.get(device)}
        kept: Mapping[int, NamespaceAnswer] = {}
        if index is not None and any(holding.values()):
            with suppress(TimeoutError, DeviceError, OSError, RuntimeError):  # the searches say what is wrong
                async with asyncio.timeout(_PATIENCE):
                    kept, _ = await self._ask_again(holding, index)
        for inode, answer in kept.items():
            known = self._known.get(inode)
            if known is not None and answer.most is not None and not known.is_disturbed:
                still = sum(answer.most.get(device, {}).values())
                found = {**found, known.owner: min(found.get(known.owner, 0), still)}
        return found

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
            await in_daemon_thread(lambda: self._search_inside([]))

    async def _search(self) -> bool:
        """Search once; say whether all pids of all namespaces were searched, and nothing is as it was not before."""
        index, begun = self._index, time.monotonic()
        if index is None:
            return False
        there = await in_daemon_thread(lambda: find_namespaces(index, self._own))
        self._meet(there)
        # Those first that were not asked for longest: there may be no time for all.
        chosen = sorted(there, key=lambda inode: (self._known[inode].turn, inode))[:MOST_NAMESPACES]
        most = most_pids()
        asked = await self._ask(chosen, lambda inode, descriptor: self._known[inode].ask(descriptor, most))
        holding = {inode: _not_among(there[inode].living, answer) for inode, (_, answer) in asked.items()}
        kept, exiting = await self._ask_again(holding, index)
        self._searches += 1
        is_new = False
        for inode, (question, answer) in asked.items():
            known = self._known[inode]
            is_new |= known.take(question, answer, kept[inode], exiting.get(inode, frozenset()), begun)
            known.turn = known.turn if answer.has_come else self._searches
        self._say({answer.trouble for answer in (*(answer for _, answer in asked.values()), *kept.values())})
        if is_new:
            self._begin_anew()
        is_told = not chosen or any(not answer.has_come for _, answer in asked.values())
        return is_told and all(one.is_through for one in self._known.values())

    async def _ask_again(
        self, holding: Mapping[int, Sequence[int]], index: ProcessIndex
    ) -> tuple[Mapping[int, NamespaceAnswer], Mapping[int, AbstractSet[int]]]:
        """Return what those of the pids found in namespaces hold still who are not alive by now, and which exit."""
        if not any(holding.values()):
            return dict.fromkeys(holding, _NOBODY), {}
        containers = {inode: self._known[inode].owner.container or "" for inode in holding}
        by_container = await in_daemon_thread(lambda: unended_in(index))
        unended = {inode: by_container.get(container, Unended()) for inode, container in containers.items()}
        dead = {
            inode: [pid for pid in pids if pid not in unended[inode].alive][:_MOST_FOUND]
            for inode, pids in holding.items()
        }
        order = sorted(dead, key=lambda inode: not dead[inode])  # who asks about nobody, asks no more
        asked = await self._ask(order, lambda inode, descriptor: NamespaceQuestion(descriptor, sorted(dead[inode]), []))
        late = NamespaceAnswer()
        kept = {inode: asked.get(inode, (None, late))[1] if dead[inode] else _NOBODY for inode in dead}
        return kept, {inode: one.exiting for inode, one in unended.items()}

    def _meet(self, there: Mapping[int, Namespace]) -> None:
        """Know these namespaces and no others; of each one descriptor stays open."""
        for inode in self._known.keys() - there.keys():
            os.close(self._known.pop(inode).descriptor)
        is_first = not self._known  # where others are known, nobody waits for one that came since
        for inode, one in there.items():
            known = self._known.setdefault(inode, _Known(one.owner, one.descriptor, is_through=not is_first))
            known.owner = one.owner
            if known.descriptor != one.descriptor:
                os.close(one.descriptor)

    async def _ask(
        self, chosen: Sequence[int], ask: Callable[[int, int], NamespaceQuestion]
    ) -> dict[int, tuple[NamespaceQuestion, NamespaceAnswer]]:
        """Return questions about namespaces that were answered, and the answers, by inode.

        Who asks may be late, and has descriptors of its own.

        Args:
            chosen: inodes.
            ask: makes the question about an inode with a descriptor.
        """
        descriptors = list[int]()

        def end() -> None:
            while descriptors:
                os.close(descriptors.pop())

        def work() -> Sequence[NamespaceAnswer]:
            try:
                return self._search_inside(questions)
            finally:
                end()

        if not chosen:
            return {}
        try:
            for inode in (chosen := [inode for inode in chosen if inode in self._known]):  # they may be gone by now
                descriptors.append(os.dup(self._known[inode].descriptor))
            questions = [ask(*row) for row in zip(chosen, descriptors, strict=True)]
            answers = await in_daemon_thread(work)
        except (OSError, RuntimeError):  # a thread may not have begun
            end()
            raise
        return dict(zip(chosen, zip(questions, answers, strict=False), strict=False))

    def _search_inside(self, questions: Sequence[NamespaceQuestion]) -> Sequence[NamespaceAnswer]:
        with self._asking:
            return self._devices.search_inside(questions)

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


def _not_among(living: AbstractSet[int], answer: NamespaceAnswer) -> list[int]:
    """Return the pids that hold memory and were not alive before that was asked; who holds most is first."""
    sizes = Counter[int]()
    for rows in (answer.most or {}).values():
        sizes.update({pid: size for pid, size in rows.items() if size and pid not in living})
    return [pid for pid, _ in sizes.most_common()]


def _found_twice(totals: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return by device what two of these have at least, in bytes."""
    devices = set().union(*totals)
    second = {device: sorted((one.get(device, 0) for one in (*totals, {})), reverse=True)[1] for device in devices}
    return {device: size for device, size in second.items() if size}
