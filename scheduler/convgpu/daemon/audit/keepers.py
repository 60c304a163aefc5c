"""Finds who may keep memory that ended containers left behind: who has a descriptor of the driver's."""

import asyncio
import logging
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from convgpu.core.audit.attribution import Kept
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.system.open_files import FileIdentity, holders, is_from_elsewhere
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import command, processes, with_descendants
from convgpu.protocol import records

log = logging.getLogger(__name__)

# Seconds between steps of a walk. Memory with which the driver lists nobody may stay, and be the driver's own: where
# there is no other, walks begin more seldom.
_PAUSE: Final = 1.0
_LONG_PAUSE: Final = 60.0
# Bytes of such memory that are looked for.
_WORTH: Final = 64 << 20
# Descriptors that one walk looks at (17 us each); the next one goes on from there.
_MOST_AT_ONCE: Final = 10_000
_MOST_NAMED: Final = 10
_LEFT: Final = "it has ended, and somebody has a copy of its descriptor of the driver (/dev/nvidiactl) open"
_WARNING: Final = (
    "%s has ended, and %d bytes of %s stay in use: somebody has a copy of its descriptor of the driver "
    "(/dev/nvidiactl) open, perhaps unasked: %s. Restart those until the memory is back (docs/authorization.md, "
    "Memory that stays)"
)
_UNLISTED: Final = "a program that the driver does not list"
_UNLISTED_WARNING: Final = (
    "%d bytes of %s are in use, and the driver lists no program with them. Who was sent a descriptor of the driver by "
    "another container, perhaps unasked, may keep them: %s. Restart those until the memory is back "
    "(docs/authorization.md, Memory that stays)"
)
_NOBODY: Final = "nobody is seen who has one; it may wait in a socket"


class Keepers:
    """Names who may keep what was left behind: in the log once, and in the report.

    Whose copy a descriptor is cannot be told, and every program that uses a GPU has one of its own. Who has one that
    was opened in another container was sent it, perhaps without having asked: nobody is ended for that (decision 182).

    Args:
        nodes: returns those by which the driver is called; without any nobody is looked for.
        report: shows what was left behind.
    """

    def __init__(self, nodes: Callable[[], Collection[FileIdentity]], report: AuditReport) -> None:
        self._nodes = nodes
        self._report = report
        self._left: dict[str, Sequence[Kept]] = {}  # by device
        self._unlisted: dict[str, int] = {}  # likewise, bytes
        self._walking: asyncio.Task[None] | None = None
        self._first = -math.inf  # when the last walk began
        self._forget()

    def _forget(self) -> None:
        self._told: dict[str, set[str]] = {}  # names by device
        self._told_unlisted: set[str] = set()  # devices
        self._walk: Iterator[tuple[int, str] | None] | None = None
        self._begun = -math.inf
        self._found: dict[int, bool] = {}  # pids in this walk, and whether they were sent a descriptor
        self._candidates = ""  # in the last whole walk
        self._is_any_sent = False  # likewise

    def see_unlisted(self, device: str, size: int) -> None:
        """Take how many bytes of a device are in use for certain, and the driver lists nobody with them."""
        self._unlisted[device] = size if size > _WORTH else 0

    def see(self, device: str, left: Sequence[Kept]) -> None:
        """Take what a sample of a device shows that was left behind."""
        self._left[device] = left
        text = f"{_LEFT}; {self._candidates}" if self._candidates else _LEFT
        rows = [records.Unlimited(_name(one), "", one.size, 0, text) for one in left]
        if self._is_any_sent and (size := self._unlisted.get(device, 0)):
            rows.append(records.Unlimited(_UNLISTED, "", size, 0, self._candidates))
        self._report.left[device] = tuple(rows)

    def look(self, index: ProcessIndex) -> None:
        """Look at more descriptors, if anything was left behind; when all were seen, say who has one.

        Nobody waits for it: a process whose files the kernel does not tell of would hold up the audit.
        """
        if self._walking is not None and not self._walking.done():
            return
        is_left = any(self._left.values())
        if not (is_left or any(self._unlisted.values())) or not self._nodes():
            self._forget()
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        is_due = is_left or self._walk is not None or now - self._first >= _LONG_PAUSE
        if is_due and now - self._begun >= _PAUSE:
            self._begun = now
            self._first = now if self._walk is None else self._first
            self._walking = loop.create_task(self._look(index))

    async def _look(self, index: ProcessIndex) -> None:
        is_whole = await in_daemon_thread(self._go_on)
        if is_whole:
            self._candidates = await in_daemon_thread(lambda: _describe(self._found, index))
            self._is_any_sent = any(self._found.values())
            self._found = {}
            self._tell()

    def _go_on(self) -> bool:
        """Go on with the walk; return whether it has come to its end."""
        if self._walk is None:
            ours = with_descendants(os.getpid())  # who asks the driver within namespaces, too
            self._walk = holders((pid for pid in processes() if pid not in ours), self._nodes())
        steps = 0
        for found in islice(self._walk, _MOST_AT_ONCE):
            steps += 1
            if found is not None:
                self._found[found[0]] = self._found.get(found[0], False) or is_from_elsewhere(*found)
        if steps == _MOST_AT_ONCE:
            return False
        self._walk = None
        return True

    def _tell(self) -> None:
        for device, left in self._left.items():
            told = self._told.get(device, set())
            self._told[device] = {_name(one) for one in left}
            for one in left:
                if _name(one) not in told:
                    who = f"container {_name(one)}" if one.owner.is_known else _name(one)
                    log.warning(_WARNING, who, one.size, device, self._candidates)
        for device, size in self._unlisted.items():
            if not (size and self._is_any_sent):
                self._told_unlisted.discard(device)
            elif device not in self._told_unlisted:
                self._told_unlisted.add(device)
                log.warning(_UNLISTED_WARNING, size, device, self._candidates)


def _describe(found: dict[int, bool], index: ProcessIndex) -> str:
    """Name those who were sent a descriptor; if nobody was, all who have one."""
    sent = sorted(pid for pid, is_sent in found.items() if is_sent)
    pids = sent or sorted(found)
    if not pids:
        return _NOBODY
    named = [f"{pid} {command(pid)} {_place(pid, index)}" for pid in pids[:_MOST_NAMED]]
    more = [f"{len(pids) - _MOST_NAMED} more"] if len(pids) > _MOST_NAMED else []
    return ("was sent one: " if sent else "has one: ") + ", ".join([*named, *more])


def _place(pid: int, index: ProcessIndex) -> str:
    name = index.volume_of(pid) or index.container_of(pid)
    return f"in container {name}" if name else "on the host"


def _name(one: Kept) -> str:
    return one.owner.volume or one.owner.container or f"process {one.pid}"
