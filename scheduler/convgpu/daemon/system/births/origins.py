"""Knows where processes ran that began and ended while nobody looked, by the births that the kernel tells of."""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from convgpu.core.audit.births import Births, Place
from convgpu.daemon.system.births.fork_events import ForkEvents
from convgpu.daemon.system.processes.cgroups import views
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import containers_of, is_alive, processes

log = logging.getLogger(__name__)

# Seconds between reads of births. The kernel queues 80,000 of them: more than any host makes meanwhile.
_INTERVAL: Final = 0.25
# Processes whose place is looked at with one read; 30 us each. The others are known by their relatives, or not.
_MOST_LOOKS: Final = 1_000
# Seconds between walks of all processes, which each loss of births asks for.
_PAUSE: Final = 10.0
# Network namespaces in which the connector is looked for.
_MOST_NETWORKS: Final = 100
_PARENT: Final = re.compile(r"^PPid:\t(\d+)$", re.MULTILINE)
_UNKNOWN: Final = (
    "the kernel does not tell which processes begin (%s): memory of a program that begins and ends between two "
    "audits, and that others keep, is nobody's (docs/authorization.md, Memory that stays)"
)


class Origins:
    """Reads births at intervals from `start` on, in threads; without the kernel's connector nothing is known."""

    def __init__(self) -> None:
        self._births = Births()
        self._lock = threading.Lock()  # of the births: written in threads, asked by the audit
        self._reading = threading.Lock()  # one thread reads at a time
        self._events: ForkEvents | None = None
        self._must_walk = False
        self._walked = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read births from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await in_daemon_thread(self.open)
            while True:
                await asyncio.sleep(_INTERVAL)
                with suppress(RuntimeError):  # no thread can be started; the next time more is read
                    await in_daemon_thread(self.catch_up)
        except OSError as error:
            log.info(_UNKNOWN, error)
        except Exception:  # a fault here must not go unseen
            log.exception("the births of processes are not read any more")

    def open(self) -> None:
        """Subscribe to births, and see who lives. It changes the network namespace of its thread, for a moment.

        Raises:
            OSError: see ForkEvents.
        """
        self._events = ForkEvents(_networks())
        self._walk()

    def place_of(self, pid: int, since: float, until: float) -> Place:
        """Return in which containers a process ran that has ended; empty: on the host, or it is not known (yet).

        Args:
            pid: that it had.
            since: seconds on the monotonic clock; what it is asked for was not there before.
            until: likewise; it was there then.
        """
        with self._lock:
            return self._births.place_of(pid, since, until, _places_of_children)

    def catch_up(self) -> None:
        """Read the births since the last time; another thread that reads is waited for, but not for long.

        Raises:
            OSError: the connector does not work any more.
        """
        if self._reading.acquire(timeout=_INTERVAL):
            try:
                self._read()
            finally:
                self._reading.release()

    def _read(self) -> None:
        events = self._events
        if events is None:
            return
        orphans: list[int] = []
        begun = time.monotonic()
        living, seen = set(processes()), time.monotonic()
        for parent, pid, at in events.read():
            with self._lock:
                if not self._births.add(pid, parent, at):
                    orphans.append(pid)
        self._look(orphans[-_MOST_LOOKS:])
        is_lost = events.take_loss()
        with self._lock:
            self._births.end(living, begun, seen)
            if is_lost:
                self._births.lose()
        self._must_walk = self._must_walk or is_lost
        if self._must_walk and time.monotonic() - self._walked >= _PAUSE:
            self._walk()

    def _look(self, pids: list[int]) -> None:
        for pid in pids:
            place = tuple(containers_of(pid))
            if place or is_alive(pid):
                with self._lock:
                    self._births.place(pid, place)

    def _walk(self) -> None:
        """See all who live, for nothing else is certain; births from now on come with the next read."""
        self._must_walk, self._walked = False, time.monotonic()
        with self._lock:
            self._births.clear(self._walked)
        for pid in processes():
            parent = _parent(pid)
            if parent is not None:
                with self._lock:
                    self._births.add(pid, parent, 0.0)
        self._look(processes())

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
        if self._events is not None:
            self._events.close()
            self._events = None


def _networks() -> Iterator[Path]:
    """Return network namespaces, one of which may be the host's first: those of who is above us, then all others."""
    above = [Path(view).parent for view in views()]
    seen: set[int] = set()
    for process in (*above, *(Path(f"/proc/{pid}") for pid in processes())):
        try:
            network = (process / "ns/net").stat().st_ino
        except OSError:
            continue  # it has ended, or is not to be looked at
        if network not in seen and len(seen) < _MOST_NETWORKS:
            seen.add(network)
            yield process / "ns/net"


def _parent(pid: int) -> int | None:
    try:
        found = _PARENT.search(Path(f"/proc/{pid}/status").read_text(errors="replace"))
    except OSError:
        return None  # it has ended
    return int(found[1]) if found else None


def _places_of_children(pid: int) -> Iterator[Place]:
    """Yield where the living children of a process run that are in containers (proc(5), task/TID/children)."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in " ".join(lists).split():
        if place := tuple(containers_of(int(child))):
            yield place
