"""Facts from the kernel about processes and about itself (proc(5), cgroups(7), namespaces(7))."""

import errno
import os
import re
import select
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from convgpu.daemon.system.processes.bounded_looks import BoundedLooks

_PROC = Path("/proc")
_STATE: Final = re.compile(r"^State:\t(.)", re.MULTILINE)
_USER: Final = re.compile(r"^Uid:\t(\d+)", re.MULTILINE)
_PARENT: Final = re.compile(r"^PPid:\t(\d+)", re.MULTILINE)
_THREADS: Final = re.compile(r"^Threads:\t(\d+)", re.MULTILINE)
_SO_PEERPIDFD: Final = 77  # include/uapi/asm-generic/socket.h; Python has no name for it
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MOST_STARTS: Final = 4096
_MOST_READS: Final = 512  # of one process's threads in one look that finds none; more for one that has more
# The Engine names a container's cgroup after its id: /docker/ID (cgroupfs), docker-ID.scope (systemd); v1 and v2.
# SLICE:NAME:ID is what a runtime that shall not ask systemd makes of a name for systemd.
_CONTAINER: Final = re.compile(rb"[/:-]([0-9a-f]{64})(?:\.scope)?(?=/|$)")
# systemd gives each user of the host the cgroups below this one: the user names them, also after others' containers.
_USERS: Final = re.compile(rb"/user@([0-9]+)\.service(?=/)")

_looks: Final = BoundedLooks()
_starts: Final[dict[int, int]] = {}  # what was told last, by pid
_told: Final[dict[int, tuple[int, list[str]]]] = {}  # by pid, when it started, and the containers that a thread named


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


def _read(task: int | str, file: str) -> str:
    """Return a file of /proc/PID, or of a thread's (`PID/task/TID`); empty: it has ended.

    Names in it can be any bytes but a line feed, and be used as paths.
    """
    try:
        return os.fsdecode((_PROC / str(task) / file).read_bytes())
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Say whether a process lives and is not exiting. Its first thread may have ended before the others.

    By `status`, which the kernel tells of every process without waiting (see `bounded_looks`). One whose threads come
    and go faster than they can be read lives: who exits as a whole makes no more.
    """
    return is_running(pid) or ask_threads(pid, is_running) is not False


def is_running(task: int | str) -> bool | None:
    """Say whether a thread, of a pid the first one, has not ended and is not exiting; None if it is gone."""
    if not (text := _read(task, "status")):
        return None
    # Who exits gives its memory up first: then the kernel tells no size of it any more.
    state = _STATE.search(text)
    return state is not None and state[1] not in "ZX" and "\nVmSize:" in text


def is_exiting(pid: int) -> bool:
    """Say whether a process exits and has not ended: the kernel closes its files now, the driver's among them."""
    return not is_alive(pid) and (_is_there(pid) or bool(ask_threads(pid, _is_there)))


def _is_there(task: int | str) -> bool | None:
    if not (text := _read(task, "status")):
        return None
    state = _STATE.search(text)
    return state is not None and state[1] not in "ZX"


def ask_threads(pid: int, tells: Callable[[str], bool | None]) -> bool | None:
    """Ask the threads of a process, but its first one, until one tells; the youngest first.

    Threads may each make the next one and end at once, and be gone when they are read: they are listed again. That no
    thread is left out is certain only if two listings in a row are equal, all were there in both, and the kernel
    counted as many in between.

    Args:
        pid: of a process whose first thread has ended, or is about to.
        tells: says whether a thread, `PID/task/TID`, tells; None: it is gone, or ends.

    Returns:
        Whether one told; None if they came and went too fast to say so.
    """
    before: list[str] = []
    reads, most = 0, _MOST_READS
    while reads < most:
        count = _THREADS.search(_read(pid, "status"))
        if count is None or count[1] == "1":
            return False
        threads = [thread for thread in _threads(pid) if thread != str(pid)]
        answers = []
        for thread in reversed(threads):
            answers.append(tells(f"{pid}/task/{thread}"))
            if answers[-1]:
                return True
        if threads == before and None not in answers and int(count[1]) == len(threads) + 1:
            return False
        before = [] if None in answers else threads
        most = max(most, 3 * len(threads))
        reads += len(threads) + 1
    return None


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(_PROC / str(pid) / "task")  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot, which tells reused pids apart; 0 if it has ended.

    Of a process that keeps the kernel from telling, what was told last; 0 if nothing was.
    """
    return _read_start(pid, _looks.ask(pid, lambda: _read(pid, "stat")))


def _read_start(pid: int, found: str | None) -> int:
    """Return the start time by the text of `stat`, None: it was not told."""
    if found is None:
        return _starts.get(pid, 0) if is_alive(pid) else 0
    fields = found.rpartition(")")[2].split()
    if not fields:
        return 0
    if len(_starts) >= _MOST_STARTS:
        _starts.clear()
    _starts[pid] = int(fields[19])
    return _starts[pid]


def lives_since(pid: int, started: int) -> bool:
    """Say whether the process lives that started then, in clock ticks since boot.

    A process of which nothing was told yet, for it keeps the kernel from telling or the machine is slow, counts as that
    one while it lives: what is judged by this is given up for good.
    """
    told = start_time(pid)
    return told == started or (not told and is_alive(pid))


def ticks_since_boot() -> int:
    """Return the time that `start_time` counts in, in clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)


def containers_of(pid: int) -> list[str]:
    """Return the Engine's ids of the containers in whose cgroups a process runs, the outermost first.

    There can be several: the Engine may run in a container itself. Below its own container's cgroup a process can
    choose any names. What a user of the host named after a container is that user's: `user1000-ID`. Under cgroup v1 a
    first thread that has ended shows the root (cgroup_exit in kernel/cgroup): then another thread tells, and if none
    can be read in time, what one told last.
    """
    found = _named_by(_read(pid, "cgroup"))
    if found or is_running(pid):
        return found
    tables: list[str] = []
    if ask_threads(pid, partial(_read_table, tables)) is None:
        start, told = _told.get(pid, (0, []))
        return told if start and start == start_time(pid) else []
    if found := _named_by("".join(tables)):
        if len(_told) >= _MOST_STARTS:
            _told.clear()
        _told[pid] = start_time(pid), found
    return found


def cgroup_tables(pid: int) -> list[str]:
    """Return the table of cgroups (cgroups(7)) of a process, and if its first thread has ended, another one's, too."""
    tables = [table] if (table := _read(pid, "cgroup")) else []
    if not is_running(pid):
        ask_threads(pid, partial(_read_table, tables))
    return tables


def _read_table(tables: list[str], task: str) -> bool | None:
    """Add a thread's table of cgroups, and say whether it has one; None if that cannot be told."""
    table = _read(task, "cgroup")
    # Under version 1 who exits shows nothing but roots. Under version 2 alone all threads' are the first one's.
    is_told = any(line and not (line.startswith("0:") or line.endswith(":/")) for line in table.split("\n"))
    if is_told:
        tables.append(table)
    return is_told or (False if table else None)


def _named_by(table: str) -> list[str]:
    return list(dict.fromkeys(name for line in os.fsencode(table).split(b"\n") for name in _names(line)))


def _names(line: bytes) -> Iterator[str]:
    users = _USERS.search(line)
    for found in _CONTAINER.finditer(line):
        prefix = f"user{users[1].decode()}-" if users and users.end() <= found.start() else ""
        yield prefix + found[1].decode()


def pid_namespace(pid: int) -> int | None:
    """Return the inode of a process's pid namespace; None: it has ended, or keeps the kernel from telling."""
    return _looks.ask(pid, lambda: _read_namespace(pid))


def _read_namespace(pid: int) -> int | None:
    try:
        return (_PROC / str(pid) / "ns/pid").stat().st_ino
    except OSError:
        return None


def open_pid_namespace(pid: int) -> int | None:
    """Return a descriptor of a process's pid namespace; None: it has ended, or keeps the kernel from telling."""
    lock, opened, is_late = Lock(), list[int](), False

    def look() -> None:
        try:
            descriptor = os.open(_PROC / str(pid) / "ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        with lock:
            if is_late:  # nobody takes it any more
                os.close(descriptor)
            else:
                opened.append(descriptor)

    _looks.ask(pid, look)
    with lock:
        is_late = True
        return opened[0] if opened else None


def namespace_pids(pid: int) -> list[int]:
    """Return the pids of a process in each pid namespace from ours down to its own; empty if it has ended."""
    lines = _read(pid, "status").split("\n")
    return next(([int(number) for number in line.split()[1:]] for line in lines if line[:6] == "NSpid:"), [])


class KernelFacts(NamedTuple):
    """What the kernel tells of a process: see `start_time`, `containers_of`, `pid_namespace` and `namespace_pids`."""

    started: int
    ids: list[str]
    namespace: int | None
    pids: list[int]


def look_at(pid: int) -> KernelFacts:
    """Return what the kernel tells of a process. Waits for another thread, and for a process that keeps it waiting."""
    stat, namespace = _looks.ask(pid, lambda: (_read(pid, "stat"), _read_namespace(pid))) or (None, None)
    return KernelFacts(_read_start(pid, stat), containers_of(pid), namespace, namespace_pids(pid))


def user(pid: int) -> int | None:
    """Return the real user ID of a process; None: it has ended."""
    found = _USER.search(_read(pid, "status"))
    return int(found[1]) if found else None


def command(pid: int) -> str:
    """Return the name that a process gave itself, in quotes, for people: it proves nothing. Empty: it has ended."""
    try:
        return repr(Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n").decode(errors="replace"))
    except OSError:
        return "''"


def with_descendants(pid: int) -> set[int]:
    """Return a process, its children, theirs, and so on, of those that are visible here."""
    children: dict[int, list[int]] = {}
    for one in processes():
        if (parent := _PARENT.search(_read(one, "status"))) is not None:
            children.setdefault(int(parent[1]), []).append(one)
    found, new = {pid}, [pid]
    while new:
        more = [one for one in children.get(new.pop(), ()) if one not in found]
        found.update(more)
        new += more
    return found


def processes() -> list[int]:
    """Return the pids of all processes that are visible here."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - a Path for each costs 10 ms
