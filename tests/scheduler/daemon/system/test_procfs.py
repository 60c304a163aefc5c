"""What the kernel tells about real processes."""

import errno
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest
from daemon import wait_until

from convgpu.daemon.system import procfs
from convgpu.daemon.system.mappings import managed_size
from convgpu.daemon.system.open_files import has_open
from convgpu.daemon.system.processes import bounded_looks
from convgpu.daemon.system.processes.bounded_looks import BoundedLooks
from convgpu.daemon.system.procfs import (
    cgroup_tables,
    containers_of,
    is_alive,
    is_exiting,
    lives_since,
    namespace_pids,
    open_peer,
    open_process,
    start_time,
)

CGROUPS = Path("/sys/fs/cgroup")
A, B = "a" * 64, "b" * 64

# The first thread ends (pthread_exit) and another goes on until stdin ends.
_PROGRAM = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_for_as_long_as_any_of_its_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE) as process:
        status = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z", "its first thread ends")
        alive = is_alive(process.pid)
        process.kill()
        assert alive
        wait_until(lambda: not is_alive(process.pid), "it ends")


def _status(text: str) -> Callable[[object, str], str]:
    """Return what reads `text` as each process's status, and nothing else."""
    return lambda _task, file: text if file == "status" else ""


def test_who_exits_has_no_memory_and_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does for as long as its files take to be closed: too short a time to be seen in a test."""
    told = {"R": "VmSize:\t1 kB\nThreads:\t1\n", "D": "Threads:\t1\n", "Z": "Threads:\t1\n", "": ""}
    found = {}
    for state, rest in told.items():
        text = f"Name:\tx\nState:\t{state} (x)\n{rest}" if state else ""
        monkeypatch.setattr("convgpu.daemon.system.procfs._read", _status(text))
        found[state] = (is_alive(1), is_exiting(1))
    assert found == {"R": (True, False), "D": (False, True), "Z": (False, False), "": (False, False)}


# The first thread has ended; each other one makes the next one and ends at once.
_HOPS = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#define SHARED (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
static char stacks[64][4096] __attribute__((aligned(64)));
static int hop(void *at) {
    long next = ((long)at + 1) & 63;
    while (clone(hop, stacks[next] + 4000, SHARED, (void *)next) < 0);
    syscall(SYS_exit, 0);
    return 0;
}
int main(void) {
    alarm(60);
    read(0, stacks, 1);
    clone(hop, stacks[0] + 4000, SHARED, 0);
    syscall(SYS_exit, 0);
}
"""


@contextmanager
def _hopping(folder: Path, begin: Callable[[int], object] = id) -> Iterator[int]:
    """Run that program, and call `begin` with its pid before; yield the pid once its first thread has ended."""
    program = folder / "hops"
    subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", program], input=_HOPS.encode(), check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        try:
            begin(process.pid)
            assert process.stdin is not None
            process.stdin.close()
            status = Path(f"/proc/{process.pid}/stat")
            wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z", "its first thread ends")
            yield process.pid
        finally:
            process.kill()
        wait_until(lambda: not is_alive(process.pid), "it ends")
        assert (has_open(process.pid, (1, 9999, None)), managed_size(process.pid)) == (False, 0)


def test_a_process_lives_whose_threads_each_make_the_next_one_and_end(tmp_path: Path) -> None:
    with _hopping(tmp_path) as pid:
        assert [is_alive(pid) for _ in range(1000)] == [True] * 1000
        # What nobody can tell, as its first thread has no descriptors any more: any other of this kind of device.
        assert [has_open(pid, (9999, 0, None)) for _ in range(100)] == [None] * 100


def test_a_process_stays_in_its_container_whose_threads_each_make_the_next_one_and_end(tmp_path: Path) -> None:
    """Under version 1 only a thread that lives says where it is."""
    if os.geteuid() != 0 or not os.access(CGROUPS / "pids/cgroup.procs", os.W_OK):
        pytest.skip("no cgroups of version 1 can be made here")
    container = secrets.token_hex(32)
    group = CGROUPS / "pids" / container
    group.mkdir()
    try:
        with _hopping(tmp_path, lambda pid: (group / "cgroup.procs").write_text(str(pid))) as pid:
            told = [containers_of(pid) for _ in range(1000)]
            tables = [any(container in table for table in cgroup_tables(pid)) for _ in range(300)]
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "it is empty")
        group.rmdir()
    assert told == [[container]] * 1000
    assert tables == [True] * 300


def test_what_nobody_can_read_in_time_is_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same process, and of no other that has its pid now."""
    starts = [7, 7, 8]
    answers: list[bool | None] = [None, True, None, None]

    def ask(_pid: int, tells: Callable[[str], bool | None]) -> bool | None:
        return answers.pop(0) and tells("1/task/1")

    tables = {1: "5:pids:/\n", "1/task/1": f"5:pids:/docker/{A}\n"}
    monkeypatch.setattr(procfs, "ask_threads", ask)
    monkeypatch.setattr(procfs, "start_time", lambda _pid: starts.pop(0))
    monkeypatch.setattr(procfs, "_read", lambda task, file: tables[task] if file == "cgroup" else "")
    monkeypatch.setattr(procfs, "_told", {})
    assert [containers_of(1) for _ in answers[:]] == [[], [A], [A], []]


_NAMED = """
import sys
with open("/proc/self/comm", "wb") as name:
    name.write(b"x\\xff\\x0bNSpid:\\t7")
print(flush=True)
sys.stdin.read()
"""


def test_no_name_that_a_process_gives_itself_says_which_pids_it_has() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _NAMED], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        assert (namespace_pids(process.pid)[0], is_alive(process.pid)) == (process.pid, True)
        process.kill()


_CONNECTS = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
one, other = socket.socketpair()
socket.send_fds(channel, [b"x"], [one.fileno()])
sys.stdin.read()
"""


def test_the_peer_of_a_connection_is_who_made_it_and_no_other() -> None:
    """Its end is known though somebody else keeps the socket open and its pid may be used again."""
    channel, theirs = socket.socketpair()
    command = [sys.executable, "-S", "-E", "-c", _CONNECTS, str(theirs.fileno())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]) as process, channel, theirs:
        _, [descriptor], _, _ = socket.recv_fds(channel, 1, 1)
        with socket.socket(fileno=descriptor) as connection:
            alive = open_peer(connection, process.pid)
            assert alive is not None
            assert select.select([alive], [], [], 0)[0] == []
            process.kill()
            process.wait()
            assert select.select([alive], [], [], 10)[0] == [alive]
            os.close(alive)
            late = open_peer(connection, process.pid)
            if late is not None:
                assert select.select([late], [], [], 0)[0] == [late]
                os.close(late)
            assert open_peer(connection, 0) is None


def test_no_descriptor_says_nothing_about_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for gone, a process that lives would lose its memory with its connection."""

    def exhausted(_pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    assert open_process(1 << 22) is None
    monkeypatch.setattr(os, "pidfd_open", exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        open_process(os.getpid())


@pytest.fixture
def delegated() -> Iterator[Path]:
    """The cgroup that systemd gives a user of the host, as one of that name; a process cannot tell the difference."""
    parent = next((CGROUPS / name for name in ("unified", ".") if (CGROUPS / name / "cgroup.procs").exists()), None)
    if parent is None or os.geteuid() != 0 or not os.access(parent, os.W_OK):
        pytest.skip("cgroups cannot be made here")
    group = parent / "user@4242.service"
    group.mkdir(exist_ok=True)
    yield group
    group.rmdir()


def test_what_a_user_of_the_host_names_after_a_container_is_not_that(delegated: Path) -> None:
    """Whoever is in there would be taken for the container: its memory, and the end for too much of it."""
    victim = secrets.token_hex(32)
    group, below = (delegated / name for name in (f"docker-{victim}.scope", f"docker-{victim}.scope/{victim}"))
    below.mkdir(parents=True)
    try:
        with subprocess.Popen(["sleep", "60"]) as process:
            (below / "cgroup.procs").write_text(str(process.pid))
            told = containers_of(process.pid)
            process.kill()
    finally:
        wait_until(lambda: not (below / "cgroup.procs").read_text(), "it is empty")
        below.rmdir()
        group.rmdir()
    assert told == [f"user4242-{victim}"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (f"0::/docker/{A}", [A]),
        (f"0::/system.slice/docker-{A}.scope/init.scope", [A]),
        # Below a container's own cgroup all names are its own anyway.
        (f"0::/docker/{A}/user.slice/user@1000.service/{B}", [A, f"user1000-{B}"]),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope", [f"user1000-{A}"]),
        (f"9:name=systemd:/user@7.service/{A}\n8:pids:/docker/{B}", [f"user7-{A}", B]),
        ("0::/user.slice/user@7.service", []),
        (f"0::/x{A}/{A}0/docker-{A}.slice", []),
        # Hosts with version 2 alone: the Engine's plugins, its containers in a slice, in Kubernetes, podman, Slurm.
        (f"0::/system.slice/{A}", [A]),
        (f"0::/teams.slice/teams-vision.slice/docker-{A}.scope", [A]),
        (
            f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a_1b.slice/cri-containerd-{A}.scope",
            [A],
        ),
        (f"0::/kubepods.slice/kubepods-pod0a_1b.slice/crio-{A}.scope/container", [A]),
        (f"0::/kubepods/burstable/pod0a-1b/{A}", [A]),
        (f"0::/system.slice/containerd.service/kubepods-burstable-pod0a_1b.slice:cri-containerd:{A}", [A]),
        (f"0::/system.slice/docker-{A}.scope/kubelet.slice/kubelet-kubepods.slice/cri-containerd-{B}.scope", [A, B]),
        (f"0::/machine.slice/libpod-{A}.scope/container", [A]),
        (f"0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{A}.scope", [f"user1000-{A}"]),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", []),
        # In the reader's own cgroup namespace, beside it, and after the container's end (a zombie).
        ("0::/", []),
        (f"0::/../docker-{A}.scope", [A]),
        (f"0::/system.slice/docker-{A}.scope (deleted)", []),
    ],
)
def test_containers_by_the_names_of_cgroups(line: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda _: f"{line}\n".encode())
    assert containers_of(1) == names


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like one of /proc, where a process keeps who reads `stat` waiting, as FIFOs do."""
    folder = tmp_path / "42"
    (folder / "ns").mkdir(parents=True)
    (folder / "status").write_text("Name:\tx\nState:\tS (sleeping)\nVmSize:\t 4 kB\n")
    (folder / "stat").write_text(f"42 (x) S {' '.join(['0'] * 18)} 77 0 0\n")
    monkeypatch.setattr(procfs, "_PROC", tmp_path)
    looks = BoundedLooks(timeout=0.05)
    monkeypatch.setattr(procfs, "_looks", looks)
    monkeypatch.setattr(procfs, "_starts", {})
    yield folder
    descriptor = os.open(folder / "stat", os.O_RDWR)  # whoever waits for a writer has one
    os.close(descriptor)
    wait_until(lambda: not any(thread.is_alive() for thread in looks._hung.values()), "no thread is left")


def test_a_process_that_keeps_the_kernel_from_telling_keeps_nobody_waiting(silent: Path) -> None:
    """It runs a program while a FUSE server does not answer: `stat` is told to nobody meanwhile, `status` is."""
    assert (is_alive(42), start_time(42)) == (True, 77)
    (silent / "stat").unlink()
    os.mkfifo(silent / "stat")
    before = threading.active_count()
    assert [(is_alive(42), start_time(42)) for _ in range(3)] == [(True, 77)] * 3
    assert threading.active_count() <= before + 1  # one thread waits, however often it is asked for
    assert start_time(43) == 0  # others are told of
    (silent / "status").write_text("Name:\tx\nState:\tD (disk sleep)\n")
    assert (is_alive(42), start_time(42)) == (False, 0)


def test_a_look_that_has_not_begun_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a thread begins late; the process was taken for one that keeps the kernel from telling."""
    run = threading.Thread.run

    def run_late(thread: threading.Thread) -> None:
        goes_on.wait()
        run(thread)

    class Waits(SimpleQueue[object]):
        def get(self, block: bool = True, timeout: float | None = None) -> object:
            waits.append(timeout)
            if len(waits) == 3:
                goes_on.set()
                return super().get()
            return super().get(block, 0.001)

    waits, goes_on, made = list[float | None](), threading.Event(), bounded_looks._Look
    monkeypatch.setattr(threading.Thread, "run", run_late)
    monkeypatch.setattr(bounded_looks, "_Look", lambda work: made(work, Waits()))
    looks = BoundedLooks()
    assert looks.ask(1, lambda: "told") == "told"
    assert waits == [0.2] * 3
    goes_on.clear()
    waits[:] = [0.0] * 3
    assert BoundedLooks().ask(1, lambda: "told") is None
    assert waits[3:] == [0.2] * 10
    goes_on.set()


def test_a_process_of_which_nothing_was_told_yet_counts_as_the_one_that_lived(silent: Path) -> None:
    """After a restart, on a slow machine: what is judged by this is given up for good."""
    assert [lives_since(42, started) for started in (77, 78)] == [True, False]
    assert not lives_since(43, 77)
    (silent / "stat").unlink()
    os.mkfifo(silent / "stat")
    assert [lives_since(42, started) for started in (77, 78)] == [True, False]  # it was told before
    procfs._starts.clear()
    assert [lives_since(42, started) for started in (77, 78)] == [True, True]
    (silent / "status").write_text("Name:\tx\nState:\tZ (zombie)\n")
    assert not lives_since(42, 77)


def test_a_namespace_that_hangs_when_it_is_opened_is_closed_if_that_ever_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one does while its process starts another program, if a FUSE server keeps the kernel waiting."""
    goes_on, opened, real = threading.Event(), list[int](), os.open

    def hang(path: Path, flags: int) -> int:
        goes_on.wait()
        opened.append(real(path, flags))
        return opened[0]

    monkeypatch.setattr(procfs.os, "open", hang)
    assert procfs.open_pid_namespace(os.getppid()) is None
    goes_on.set()
    monkeypatch.undo()

    def is_closed() -> bool:
        return bool(opened) and not Path(f"/proc/self/fd/{opened[0]}").exists()

    wait_until(is_closed, "nobody has it")
    descriptor = procfs.open_pid_namespace(os.getpid())
    assert descriptor is not None
    assert os.fstat(descriptor).st_ino == procfs.pid_namespace(os.getpid())
    os.close(descriptor)


def test_who_has_many_files_may_have_one_open_and_was_not_seen_to() -> None:
    null, other = (1, 3, None), (9999, 0, None)
    opened = [os.open("/proc/self/status", os.O_RDONLY) for _ in range(1001)]
    try:
        assert has_open(os.getpid(), other) is None
    finally:
        for descriptor in opened:
            os.close(descriptor)
    with Path("/dev/null").open("rb"):
        assert has_open(os.getpid(), null) is True
