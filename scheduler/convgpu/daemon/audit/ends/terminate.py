"""Ends processes: all of a container, and no other process that got the pid of an ended one."""

import logging
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from convgpu.daemon.system.processes import cgroups
from convgpu.daemon.system.procfs import cgroup_tables, open_process, processes

log = logging.getLogger(__name__)

# A program may start others while it is being ended; without a process left it cannot.
_ROUNDS: Final = 20
# Processes of one order that are watched until they are gone.
_MOST_WATCHED: Final = 16


@dataclass(frozen=True, slots=True)
class Order:
    """What is to end.

    Attributes:
        belongs: says of a pid whether it is one of them now, by what the kernel says.
        container_of: returns the Engine's id of a process's container, whose cgroups are freed of limits.
        pids: returns those to look at.
    """

    belongs: Callable[[int], bool]
    container_of: Callable[[int], str | None]
    pids: Callable[[], Iterable[int]] = processes


@dataclass(slots=True)
class Ended:
    """Processes that got their signal. `watched`: pidfds of some, by pid; `tables`: of cgroups, by container."""

    watched: dict[int, int] = field(default_factory=dict)
    tables: dict[str, set[str]] = field(default_factory=dict)

    def free(self) -> None:
        """Free the cgroups of the containers of what delays ends."""
        for container, tables in self.tables.items():
            cgroups.free(tables, container)

    def close(self, pid: int) -> None:
        """Watch a process no more."""
        os.close(self.watched.pop(pid))


def end_connected(pidfds: Iterable[int | None]) -> None:
    """End connected processes by their pidfds, which always name the process that connected."""
    for pidfd in pidfds:
        if pidfd is not None:
            _kill(pidfd)


def end_all(order: Order, ended: Ended) -> None:
    """End processes until there are none that did not get the signal, and free their cgroups; reads all of /proc."""
    seen: set[int] = set()
    for _ in range(_ROUNDS):
        found = [pid for pid in order.pids() if pid not in seen and pid != os.getpid() and _end(pid, order, ended)]
        seen.update(found)
        if not found:
            break
    ended.free()


def _end(pid: int, order: Order, ended: Ended) -> bool:
    """End a process if it belongs to those that are to end; return whether it got the signal."""
    try:
        pidfd = open_process(pid)
    except OSError as error:
        log.error("pid %d cannot be opened: %s", pid, error)
        return False
    if pidfd is None:
        return False
    try:
        # Checked after the pidfd was opened: if the pid was reused since, the signal reaches no process.
        if not order.belongs(pid):
            return False
        container, tables = order.container_of(pid), cgroup_tables(pid)  # an ended one's are not told
        if not _kill(pidfd):
            return False
        if container is not None:
            ended.tables.setdefault(container, set()).update(tables)
        if pid not in ended.watched and len(ended.watched) < _MOST_WATCHED:
            ended.watched[pid] = os.dup(pidfd)
        return True
    finally:
        os.close(pidfd)


def _kill(pidfd: int) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    except OSError as error:
        log.error("a process of a container that is to end cannot be ended: %s", error)
        return False
    return True
