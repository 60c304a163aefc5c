"""Ends the processes of a container: all of them, and no other process that got the pid of an ended one."""

import logging
import os
import signal
from collections.abc import Callable, Iterable
from typing import Final

from convgpu.daemon.system.procfs import open_process, processes

log = logging.getLogger(__name__)

# A program may start others while it is being ended; without a process left it cannot.
_ROUNDS: Final = 20


def end_connected(pidfds: Iterable[int | None]) -> None:
    """End connected processes by their pidfds, which always name the process that connected."""
    for pidfd in pidfds:
        if pidfd is not None:
            _kill(pidfd)


def end_all_processes(belongs: Callable[[int], bool]) -> int:
    """End the processes that the kernel counts to a container, until there are none; return how many there were.

    Reads all of /proc: call it in a thread.

    Args:
        belongs: says of a pid whether it is one of them now, by what the kernel says.
    """
    ended = 0
    for _ in range(_ROUNDS):
        found = [pid for pid in processes() if pid != os.getpid() and end_process(pid, belongs)]
        ended += len(found)
        if not found:
            break
    return ended


def end_process(pid: int, belongs: Callable[[int], bool]) -> bool:
    """End a process if it belongs to those that are to end; return whether it was ended."""
    try:
        pidfd = open_process(pid)
    except OSError as error:
        log.error("pid %d cannot be opened: %s", pid, error)
        return False
    if pidfd is None:
        return False
    try:
        # Checked after the pidfd was opened: if the pid was reused since, the signal reaches no process.
        return belongs(pid) and _kill(pidfd)
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
