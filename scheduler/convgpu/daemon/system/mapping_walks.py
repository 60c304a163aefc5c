"""Reads what many processes map of managed memory, in threads, as a process can keep its reader waiting for ever."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from convgpu.core.audit.attribution import NOISE
from convgpu.core.audit.managed import Mapped
from convgpu.daemon.system.mappings import UNENDING, managed_size
from convgpu.daemon.system.procfs import start_time

log = logging.getLogger(__name__)

# Seconds that one waits for the list of what processes map; what is known by then counts.
_PATIENCE: Final = 0.5
# The most seconds between two walks.
_PAUSE: Final = 10.0
# Seconds after which others do not wait any more for what one process maps.
_SILENCE: Final = 1.0
# Such processes, after which nobody is asked any more.
_MOST_SILENT: Final = 64
_WARNING: Final = (
    "what process %d maps has not been told for %.0f s: it has very many mappings, or somebody holds its address space"
)

# Pids, with the devices on which their processes may have memory.
Candidates = Iterable[tuple[int, AbstractSet[str]]]


class _Walk:
    """One reading of what all candidates map, in a thread of its own, which a process can keep waiting for ever.

    Attributes:
        found: what they map, of those that map more than noise.
        at: the pid that is being asked, and since when; None between two.
        is_left: nobody waits for it, so it asks no other process.
        done: it has come to its end.
        begun: when it began.
    """

    def __init__(
        self,
        candidates: Candidates,
        size_of: Callable[[int], int],
        used_by: Callable[[int], int],
        silent: AbstractSet[int],
    ) -> None:
        self.found: dict[int, Mapped] = {}
        self.at: tuple[int, float] | None = None
        self.is_left = False
        self.done = asyncio.Event()
        self._candidates, self._size_of, self._used_by, self._silent = candidates, size_of, used_by, silent
        self._loop = asyncio.get_running_loop()
        self.begun = self._loop.time()
        # A daemon thread: one that hangs does not keep the process from ending.
        threading.Thread(target=self._run, name="mappings", daemon=True).start()

    def _run(self) -> None:
        try:
            for pid, devices in self._candidates:
                if pid not in self._silent:
                    self.at = pid, self._loop.time()
                    self._look(pid, devices)
                    self.at = None
                if self.is_left:
                    break
        finally:
            self.at = None
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.done.set)

    def _look(self, pid: int, devices: AbstractSet[str]) -> None:
        start, size = start_time(pid), self._size_of(pid)
        if not start or size <= NOISE:
            return
        at, used = self._loop.time(), self._ask_used(pid)
        # Read again: what is there before and after is what sessions account for in between. And a child that shared
        # the address space until it began its program (vfork) has its own by now. Not a list without an end.
        size = size if size == UNENDING else min(size, self._size_of(pid))
        if size > NOISE and start_time(pid) == start:
            self.found[pid] = Mapped(size, start, devices, used, at)

    def _ask_used(self, pid: int) -> int:
        """Return what the sessions of a process use: only the event loop may look at them."""
        answer: SimpleQueue[int] = SimpleQueue()
        try:
            self._loop.call_soon_threadsafe(lambda: answer.put(self._used_by(pid)))
        except RuntimeError:  # the loop is closed
            return 0
        return answer.get()


class MappingWalks:
    """Walks one after the other. A process that keeps one waiting for a second is left out of others until it has told.

    What was told of it last counts meanwhile. The walk that it keeps waiting goes no further.

    Args:
        share: the part of the time that walks may take; at least each ten seconds one begins.
        used_by: returns bytes that the sessions of a process use on all devices; called in the event loop.
        size_of: returns what a process maps, in bytes; it may never return.
        most_silent: processes that keep it waiting, after which nobody is asked any more.
    """

    def __init__(
        self,
        share: float,
        used_by: Callable[[int], int],
        size_of: Callable[[int], int] = managed_size,
        most_silent: int = _MOST_SILENT,
    ) -> None:
        self._share = share
        self._used_by = used_by
        self._size_of = size_of
        self._most_silent = most_silent
        self._walk: _Walk | None = None
        self._next = -math.inf  # when another one may begin
        self._last: dict[int, Mapped] = {}  # what is known
        self._silent: dict[int, _Walk] = {}  # by the pid that it waits for

    async def read(self, candidates: Callable[[], Candidates]) -> Mapping[int, Mapped]:
        """Return what is known of what processes map.

        Args:
            candidates: of a walk, if one begins now; iterated over in its thread.
        """
        loop = asyncio.get_running_loop()
        self._hear_late_ones()
        self._leave_if_silent(loop.time())
        if self._walk is None:
            if loop.time() < self._next or len(self._silent) >= self._most_silent:
                return self._last
            self._walk = _Walk(candidates(), self._size_of, self._used_by, frozenset(self._silent))
        walk = self._walk
        try:
            await asyncio.wait_for(walk.done.wait(), _PATIENCE)
        except TimeoutError:
            return {**self._last, **walk.found}
        if self._walk is walk:  # else another one who waited was first, and may have begun the next
            self._walk = None
            self._last = {pid: self._last[pid] for pid in self._silent.keys() & self._last.keys()} | walk.found
            self._next = loop.time() + min((loop.time() - walk.begun) / self._share, _PAUSE)
        return self._last

    def _hear_late_ones(self) -> None:
        for pid, walk in list(self._silent.items()):
            if walk.done.is_set():
                del self._silent[pid]
                self._last.pop(pid, None)
                self._last |= {own: one for own, one in walk.found.items() if own == pid}

    def _leave_if_silent(self, now: float) -> None:
        if self._walk is not None and (at := self._walk.at) is not None and now - at[1] >= _SILENCE:
            log.warning(_WARNING, at[0], now - at[1])
            self._walk.is_left = True
            self._silent[at[0]] = self._walk
            self._last |= self._walk.found
            self._walk = None
