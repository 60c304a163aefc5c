"""Facts from the kernel about processes and about itself (proc(5), cgroups(7), namespaces(7))."""

import errno
import os
import re
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PF_EXITING: Final = 0x4  # include/linux/sched.h; the ninth field of /proc/PID/stat
_SO_PEERPIDFD: Final = 77  # include/uapi/asm-generic/socket.h; Python has no name for it
# The Engine names a container's cgroup after its id: /docker/ID (cgroupfs), docker-ID.scope (systemd); v1 and v2.
_CONTAINER: Final = re.compile(rb"[/-]([0-9a-f]{64})(?:\.scope)?(?=/|$)")
# systemd gives each user of the host the cgroups below this one: the user names them, also after others' containers.
_USERS: Final = re.compile(rb"/user@([0-9]+)\.service(?=/)")


def boot_id() -> str:
    """Return the id of this boot of the kernel; random(4)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def open_process(pid: int) -> int | None:
    """Return a pidfd, or None when the process has ended or is not visible (pid 0: another pid namespace).

    Raises:
        OSError: no descriptors are left; the process may live.
    """
    try:
        return os.pidfd_open(pid) if pid else None
    except ProcessLookupError:
        return None


def open_peer(sock: socket.socket, pid: int) -> int | None:
    """Return a pidfd of the process that connected; by its pid before Linux 6.5, which cannot exclude a reused pid.

    Args:
        sock: its connection.
        pid: in our pid namespace, by SO_PEERCRED.

    Raises:
        OSError: no descriptors are left.
    """
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD) if pid else None
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL, errno.ENODATA):  # it has ended; the errno depends on the kernel
            return None
        if error.errno != errno.ENOPROTOOPT:
            raise
    return open_process(pid)


def has_ended(process: int) -> bool:
    """Say whether the process behind a pidfd has ended."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _stat(task: int | str) -> list[str]:
    """Return fields of /proc/PID/stat, or of a thread's (`PID/task/TID`), from the third on; empty: it has ended."""
    try:
        return Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Say whether a process lives and is not exiting. Its first thread may have ended before the others."""
    return _is_running_task(pid) or any(_is_running_task(f"{pid}/task/{thread}") for thread in _threads(pid))


def _is_running_task(task: int | str) -> bool:
    fields = _stat(task)
    return bool(fields) and fields[0] not in "ZX" and not int(fields[6]) & _PF_EXITING


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot, which tells reused pids apart; 0 if it has ended."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def containers_of(pid: int) -> list[str]:
    """Return the Engine's ids of the containers in whose cgroups a process runs, the outermost first.

    There can be several: the Engine may run in a container itself. Below its own container's cgroup a process can
    choose any names. What a user of the host named after a container is that user's: `user1000-ID`. Under cgroup v1 a
    first thread that has ended shows the root (cgroup_exit in kernel/cgroup): then another thread tells.
    """
    found = _named_by(pid)
    if not found and not _is_running_task(pid):
        return next((own for thread in _threads(pid) if (own := _named_by(f"{pid}/task/{thread}"))), [])
    return found


def _named_by(task: int | str) -> list[str]:
    try:
        text = Path(f"/proc/{task}/cgroup").read_bytes()
    except OSError:
        return []
    return list(dict.fromkeys(name for line in text.split(b"\n") for name in _names(line)))


def _names(line: bytes) -> Iterator[str]:
    users = _USERS.search(line)
    for found in _CONTAINER.finditer(line):
        prefix = f"user{users[1].decode()}-" if users and users.end() <= found.start() else ""
        yield prefix + found[1].decode()


def pid_namespace(pid: int) -> int | None:
    """Return the inode of a process's pid namespace, None if the process has ended."""
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return None


def namespace_pids(pid: int) -> list[int]:
    """Return the pids of a process in each pid namespace from ours down to its own; empty if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return []
    return next(
        ([int(number) for number in line.split()[1:]] for line in status.splitlines() if line[:6] == "NSpid:"), []
    )


def command(pid: int) -> str:
    """Return the name that a process gave itself, in quotes, for people: it proves nothing. Empty: it has ended."""
    try:
        return repr(Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n").decode(errors="replace"))
    except OSError:
        return "''"


def processes() -> list[int]:
    """Return the pids of all processes that are visible here."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - a Path for each costs 10 ms
