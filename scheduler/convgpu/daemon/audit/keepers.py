"""Finds who may keep memory that ended containers left behind: who has a descriptor of the driver's control node."""

import asyncio
import logging
import math
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from convgpu.core.audit.attribution import Kept
from convgpu.daemon.audit.attributor import Unlimited, host_program
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.system.open_files import FileIdentity, holders, is_from_elsewhere
from convgpu.daemon.system.procfs import processes
from convgpu.protocol import records

log = logging.getLogger(__name__)

# Seconds between walks.
_PAUSE: Final = 1.0
# Descriptors that one walk looks at (17 us each); the next one goes on from there.
_MOST_AT_ONCE: Final = 10_000
_MOST_NAMED: Final = 10
_LEFT: Final = "it has ended, and others keep its descriptor of the driver (/dev/nvidiactl) open: the log names them"
_WARNING: Final = (
    "%s has ended, and %d bytes of %s stay in use: somebody keeps a copy of its descriptor of the driver "
    "(/dev/nvidiactl) open. End who does it; candidates: %s (docs/authorization.md, Memory that stays)"
)
_NOBODY: Final = "nobody; it may wait in a socket"


class Keepers:
    """Names who may keep what was left behind, once, and tells of containers among them that may not use a GPU.

    Whose copy a descriptor is cannot be told, and every program that uses a GPU has one of its own. Who has one that
    was opened in another container was given it; a container that has no limit had no reason to take it.

    Args:
        control: the driver's control node.
        report: shows what was left behind.
    """

    def __init__(self, control: FileIdentity | None, report: AuditReport) -> None:
        self._control = control
        self._report = report
        self._left: dict[str, Sequence[Kept]] = {}  # by device
        self._told: dict[str, set[str]] = {}  # names by device
        self._forget()

    def _forget(self) -> None:
        self._walk: Iterator[tuple[int, str] | None] | None = None
        self._begun = -math.inf
        self._found: dict[int, bool] = {}  # pids in this walk, and whether they were given a descriptor
        self._before: dict[int, bool] = {}  # in the last whole walk
        self._owners: dict[int, tuple[str | None, str | None]] = {}  # container and volume by pid

    def see(self, device: str, left: Sequence[Kept]) -> None:
        """Take what a sample of a device shows that was left behind."""
        self._left[device] = left
        self._report.left[device] = tuple(records.Unlimited(_name(one), "", one.size, 0, _LEFT) for one in left)

    def without_limit(self, device: str) -> list[Unlimited]:
        """Return containers without any limit, and programs of the host's, that were given a descriptor.

        None, if nothing was left on the device. Whether one may have it, the plugin says.
        """
        size = sum(one.size for one in self._left.get(device, ()))
        given = self._before | self._found
        pids: dict[str, set[int]] = {}
        hosts = []
        for pid, (container, volume) in self._owners.items():
            if volume is None and given[pid] and size:
                if container is None:
                    hosts.append(host_program(pid, device, size))
                else:
                    pids.setdefault(container, set()).add(pid)
        return hosts + [Unlimited(own, own, size, each) for own, each in sorted(pids.items())]

    async def look(self, index: ProcessIndex) -> None:
        """Look at more descriptors, if anything was left behind; when all were seen, say who has one."""
        if self._control is None or not any(self._left.values()):
            self._forget()
            self._told = {}
            return
        now = asyncio.get_running_loop().time()
        if now - self._begun < _PAUSE:
            return
        self._begun = now
        is_whole = await asyncio.to_thread(self._go_on, self._control)
        if is_whole:
            self._before, self._found = self._found, {}
        pids = self._before | self._found
        self._owners = {pid: (index.container_of(pid), index.volume_of(pid)) for pid in pids}
        if is_whole:
            self._tell()

    def _go_on(self, control: FileIdentity) -> bool:
        """Go on with the walk; return whether it has come to its end."""
        if self._walk is None:
            self._walk = holders((pid for pid in processes() if pid != os.getpid()), control)
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
        """Name those who were given a descriptor; if nobody was, all who have one."""
        given = [pid for pid, is_given in self._before.items() if is_given] or list(self._before)
        rows = sorted((self._owners[pid][1] or self._owners[pid][0] or "the host", pid) for pid in given)
        named = [f"{pid} ({name})" for name, pid in rows[:_MOST_NAMED]]
        more = [f"{len(rows) - _MOST_NAMED} more"] if len(rows) > _MOST_NAMED else []
        for device, left in self._left.items():
            told = self._told.get(device, set())
            self._told[device] = {_name(one) for one in left}
            for one in left:
                if _name(one) not in told:
                    who = f"container {_name(one)}" if one.owner.is_known else _name(one)
                    log.warning(_WARNING, who, one.size, device, ", ".join([*named, *more]) or _NOBODY)


def _name(one: Kept) -> str:
    return one.owner.volume or one.owner.container or f"process {one.pid}"
