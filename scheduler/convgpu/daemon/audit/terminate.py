"""Ends a container's processes: all of them, none of another's, and none by a pid that may be another's by now."""

import logging
import os
import signal
from collections.abc import Iterable
from typing import Final

from convgpu.daemon.audit.container_resolver import Members
from convgpu.daemon.system.procfs import open_process, processes

log = logging.getLogger(__name__)

# A program may start others while it is being ended; without a process left it cannot.
_ROUNDS: Final = 20


def end_connected(pidfds: Iterable[int | None]) -> None:
    """End processes that are connected; a pidfd names the one that connected, whatever its pid is used for now."""
    for pidfd in pidfds:
        if pidfd is not None:
            _kill(pidfd)


def end_members(members: Members, volume: str) -> int:
    """End the processes that the kernel says are in the container, until there are none; return how many there were.

    Reads all of /proc, so it is for a thread.
    """
    ended = 0
    for _ in range(_ROUNDS):
        found = [pid for pid in processes() if pid != os.getpid() and _end(pid, members, volume)]
        ended += len(found)
        if not found:
            break
    return ended


def _end(pid: int, members: Members, volume: str) -> bool:
    try:
        pidfd = open_process(pid)
    except OSError as error:
        log.error("pid %d cannot be looked at: %s", pid, error)
        return False
    if pidfd is None:
        return False
    try:
        # Asked after the pidfd was opened: if the pid has passed on since, the signal goes to nobody.
        return members.without_session(pid) == volume and _kill(pidfd)
    finally:
        os.close(pidfd)


def _kill(pidfd: int) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    except OSError as error:
        log.error("a process of a container above its limit cannot be ended: %s", error)
        return False
    return True
