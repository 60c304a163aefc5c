"""Reads what many processes map of managed memory, in threads, as a process can keep its reader waiting for ever."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from convgpu.core.audit.managed import Mapped
from convgpu.daemon.system.mappings import managed_size
from convgpu.daemon.system.procfs import start_time

log = logging.getLogger(__name__)

# Seconds that one waits for the list of what processes map; what is known by then counts.
_PATIENCE: Final = 0.5
# The most seconds between two walks.
_PAUSE: Final = 10.0
# Processes whose mappings were not told, after which nobody is asked any more.
_MOST_SILENT: Final = 64

# Gives pids, with the devices on which their containers have a limit.
Candidates = Callable[[], Iterable[tuple[int, frozenset[str]]]]


class _Walk:
    """One reading of what all candidates map, in a thread of its own, which a process can keep waiting for ever."""

    def __init__(
        self, candidates: Candidates, size_of: Callable[[int], int], silent: frozenset[int], begun: float
    ) -> None:
        self.found: dict[int, Mapped] = {}
        self.at: int | None = None  # the pid that is being asked about
        self.done = asyncio.Event()
        self.begun = begun
        self._candidates, self._size_of, self._silent = candidates, size_of, silent
        self._loop = asyncio.get_running_loop()
        # A daemon thread: one that hangs does not keep the process from ending.
        threading.Thread(target=self._run, name="mappings", daemon=True).start()

    def _run(self) -> None:
        try:
            for pid, devices in self._candidates():
                if pid in self._silent:
                    continue
                self.at = pid
                start, size = start_time(pid), self._size_of(pid)
                self.at = None
                if start and size:
                    self.found[pid] = Mapped(size, start, devices)
        finally:
            self.at = None
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.done.set)


class MappingWalks:
    """Walks one after the other. A process that keeps one waiting from one sample to the next is left out of others.

    Args:
        share: the part of the time that walks may take; at least each ten seconds one begins.
        size_of: returns what a process maps, in bytes; it may never return.
        most_silent: processes that keep it waiting, after which nobody is asked any more.
    """

    def __init__(
        self, share: float, size_of: Callable[[int], int] = managed_size, most_silent: int = _MOST_SILENT
    ) -> None:
        self._share = share
        self._most_silent = most_silent
        self._size_of = size_of
        self._walk: _Walk | None = None
        self._next = -math.inf  # when another one may begin
        self._last: Mapping[int, Mapped] = {}  # what the last whole walk found
        self._asked: int | None = None  # the pid at which the walk was, when it was looked at last
        self._silent: list[tuple[int, _Walk]] = []

    def forget(self) -> None:
        """Take it that nobody has anything, until the next walk."""
        self._last = {}

    async def read(self, candidates: Candidates) -> Mapping[int, Mapped]:
        """Return what is known of what processes map."""
        now = asyncio.get_running_loop().time()
        self._silent = [one for one in self._silent if not one[1].done.is_set()]
        self._leave_if_silent()
        if self._walk is None:
            if now < self._next or len(self._silent) >= self._most_silent:
                return self._last
            silent = frozenset(pid for pid, _ in self._silent)
            self._walk = _Walk(candidates, self._size_of, silent, now)
        walk = self._walk
        try:
            await asyncio.wait_for(walk.done.wait(), _PATIENCE)
        except TimeoutError:
            self._asked = walk.at
            return {**self._last, **walk.found}
        if self._walk is not walk:  # another one who waited was first, and may have begun the next
            return self._last
        self._walk, self._asked, self._last = None, None, walk.found
        now = asyncio.get_running_loop().time()
        self._next = now + min((now - walk.begun) / self._share, _PAUSE)
        return self._last

    def _leave_if_silent(self) -> None:
        if self._walk is not None and self._asked is not None and self._walk.at == self._asked:
            log.warning("what process %d maps cannot be read: somebody holds its address space", self._asked)
            self._silent.append((self._asked, self._walk))
            self._last = {**self._last, **self._walk.found}
            self._walk = self._asked = None
