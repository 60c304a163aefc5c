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
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final

from convgpu.core.audit.attribution import ALL, Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts.known import Known
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
# Those that are asked about after a search: for more there is no time (`namespace_program`).
_MOST_FOUND: Final = 4096
# Seconds for which somebody waits for what is asked once more; then what was found counts.
_PATIENCE: Final = 0.5
_NOBODY: Final = NamespaceAnswer({})


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
        self._known: dict[int, Known] = {}  # by inode
        self._searches = 0
        self._there: Sequence[int] = ()  # inodes of the namespaces in which somebody asks; who is not named leaves
        self._is_over = False  # nobody asks any more
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

    def hurry(self) -> None:
        """Search next without a rest."""
        self._changed.set()

    async def confirm(self, device: str) -> Mapping[Owner, int]:
        """Ask those once more whom a search found, and no others; return what of it they hold still, as `found` does.

        Where nobody tells in time, it is as it was found.
        """
        found, index = self.found(device), self._index
        known = {inode: self._known[inode] for inode in self._there if inode in self._known}
        holding = {inode: one.pids if one.sizes.get(device) else () for inode, one in known.items()}
        kept: Mapping[int, NamespaceAnswer] = {}
        if index is not None and any(holding.values()):
            with suppress(TimeoutError, DeviceError, OSError, RuntimeError):  # the searches say what is wrong
                async with asyncio.timeout(_PATIENCE):
                    kept, _ = await self._ask_again(holding, index, _PATIENCE)
        for inode, answer in kept.items():
            one = known[inode]
            if holding[inode] and answer.most is not None and not one.is_disturbed:
                still = sum(answer.most.get(device, {}).values())
                found = {**found, one.owner: min(found.get(one.owner, 0), still)}
        return found

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        self._is_over = False
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
        self._is_over = True
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
        self._there, most = chosen, most_pids()
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
        self, holding: Mapping[int, Sequence[int]], index: ProcessIndex, patience: float = -1.0
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
        asked = await self._ask(
            order, lambda inode, descriptor: NamespaceQuestion(descriptor, sorted(dead[inode]), []), patience
        )
        late = NamespaceAnswer()
        kept = {inode: asked.get(inode, (None, late))[1] if dead[inode] else _NOBODY for inode in dead}
        return kept, {inode: one.exiting for inode, one in unended.items()}

    def _meet(self, there: Mapping[int, Namespace]) -> None:
        """Know these namespaces and no others; of each one descriptor stays open."""
        for inode in self._known.keys() - there.keys():
            os.close(self._known.pop(inode).descriptor)
        is_first = not self._known  # where others are known, nobody waits for one that came since
        for inode, one in there.items():
            known = self._known.setdefault(inode, Known(one.owner, one.descriptor, is_through=not is_first))
            known.owner = one.owner
            if known.descriptor != one.descriptor:
                os.close(one.descriptor)

    async def _ask(
        self, chosen: Sequence[int], ask: Callable[[int, int], NamespaceQuestion], patience: float = -1.0
    ) -> dict[int, tuple[NamespaceQuestion, NamespaceAnswer]]:
        """Return questions about namespaces that were answered, and the answers, by inode.

        Who asks may be late, and has descriptors of its own.

        Args:
            chosen: inodes.
            ask: makes the question about an inode with a descriptor.
            patience: seconds in which it is to be this question's turn; without a bound if it is less than 0.
        """
        descriptors = list[int]()

        def end() -> None:
            while descriptors:
                os.close(descriptors.pop())

        def work() -> Sequence[NamespaceAnswer]:
            try:
                return self._search_inside(questions, patience)
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

    def _search_inside(
        self, questions: Sequence[NamespaceQuestion], patience: float = -1.0
    ) -> Sequence[NamespaceAnswer]:
        if not self._asking.acquire(timeout=patience):
            raise TimeoutError("others are asking")
        try:
            if questions and self._is_over:  # who asks is not to be begun anew
                return []
            return self._devices.search_inside(questions)
        finally:
            self._asking.release()

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
