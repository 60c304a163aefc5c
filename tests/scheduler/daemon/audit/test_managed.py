"""Managed memory past the hook, which NVML counts for nobody; on the simulated driver, in real cgroups."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from daemon import CONTEXT, GIB, Daemon, Process, running_daemon, wait_until

from convgpu.core.audit.attribution import UNCOUNTED
from convgpu.protocol import messages as m

CHARGED = 5 * GIB + CONTEXT - UNCOUNTED  # with 5 GiB of managed memory past the hook
OPTIONS = ["--audit=100ms", "--overuse-after=300ms", "--overuse=stop"]
# Goes into a cgroup, and takes on a device so many GiB of managed memory, and so many of the card's. "child": it lets a
# child share its address space, and ends. "thread": its first thread ends.
PROGRAM = """
import ctypes, os, signal, sys, threading
cgroup, managed, plain, how, device = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
open(cgroup + "/cgroup.procs", "w").write(str(os.getpid()))
cuda, word, libc = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.CDLL(None)
assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), device) == cuda.cuCtxSetCurrent(word)
assert not managed or cuda.cuMemAllocManaged(ctypes.byref(word), ctypes.c_size_t(managed << 30), 1) == 0
assert not plain or cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(plain << 30)) == 0
print(os.getpid(), flush=True)
if how == "child":
    stack = ctypes.create_string_buffer(1 << 16)
    libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), ctypes.byref(stack, 1 << 15), 0x100, None)  # CLONE_VM
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
if how == "thread":
    threading.Thread(target=signal.pause).start()
    libc.pthread_exit(None)
signal.pause()
"""


@contextmanager
def running(
    daemon: Daemon, cgroup: Path, managed: int, plain: int = 0, how: str = "", hook: Path | None = None, device: int = 0
) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
    if hook is not None:
        environment["LD_PRELOAD"] = str(hook / "libconvgpu.so")
    command = [sys.executable, "-c", PROGRAM, str(cgroup), str(managed), str(plain), how, str(device)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == process.pid
            yield process
        finally:
            process.kill()
            for pid in (cgroup / "cgroup.procs").read_text().split():  # who shares its address space
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def device(daemon: Daemon) -> dict[str, int]:
    return daemon.admin.request("devices")["devices"][0]


def share(daemon: Daemon, name: str) -> dict[str, int]:
    return daemon.state(name)["devices"][0]


def listed(daemon: Daemon, *rows: tuple[Path, str]) -> None:
    """Say what the plugin would: containers run in these cgroups, with these volumes."""
    containers = [{"id": cgroup.name, "name": name, "state": "running", "volumes": [name]} for cgroup, name in rows]
    daemon.admin.request("listed", asked=time.time(), containers=containers, volumes=[name for _, name in rows])


def stopped(daemon: Daemon) -> list[tuple[object, object]]:
    return [(event["container"], event["reason"]) for event in daemon.events("stopped")]


def within_two_seconds(daemon: Daemon) -> set[tuple[int, int]]:
    """Return what a container was charged with, and what was external."""
    figures, begun = set(), time.monotonic()

    def has_looked() -> bool:
        figures.add((share(daemon, "a")["usage"], device(daemon)["external"]))
        return time.monotonic() - begun > 2.0

    wait_until(has_looked, "two seconds have passed")
    return figures


@pytest.mark.parametrize("how", ["", "thread"])
def test_managed_memory_past_the_hook_is_its_containers(tmp_path: Path, cgroup: Path, how: str) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        daemon.container("a", memory="6g")
        listed(daemon, (cgroup, "a"))
        with running(daemon, cgroup, 5, how=how) as program:
            # Two samples in a row confirm it, and its context may not have been whole in the first.
            wait_until(lambda: share(daemon, "a")["usage"] == CHARGED, "it is charged")
            assert within_two_seconds(daemon) == {(CHARGED, 0)}
            assert (program.poll(), stopped(daemon)) == (None, [])


@pytest.mark.parametrize(("managed", "plain"), [(5, 0), (2, 2)])
def test_above_its_limit_it_is_ended(tmp_path: Path, cgroup: Path, managed: int, plain: int) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        daemon.container("a", memory="3g")
        listed(daemon, (cgroup, "a"))
        with running(daemon, cgroup, managed, plain) as program:
            wait_until(lambda: program.poll() is not None, "it is ended")
        assert stopped(daemon) == [("a", "overuse")]
        wait_until(lambda: (share(daemon, "a")["usage"], device(daemon)["external"]) == (0, 0), "all is given back")


def test_who_shares_the_address_space_of_a_dead_program_is_ended(tmp_path: Path, cgroup: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse-after=2s") as daemon:
        daemon.container("a", memory="3g")
        listed(daemon, (cgroup, "a"))
        with running(daemon, cgroup, 5, how="child") as program:
            wait_until(lambda: share(daemon, "a")["usage"] >= 5 * GIB, "it is charged")
            program.kill()
            program.wait()
            wait_until(lambda: stopped(daemon) == [("a", "overuse")], "it is ended")
        wait_until(lambda: (cgroup / "cgroup.procs").read_text() == "", "nobody is left")


def test_who_share_an_address_space_have_its_memory_once(tmp_path: Path, cgroup: Path) -> None:
    """Each maps the same. What they have, is there: neither are they ended, nor do others wait for what is free."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        daemon.container("a", memory="6g")
        listed(daemon, (cgroup, "a"))
        with running(daemon, cgroup, 5, how="child") as program:
            # Two samples in a row confirm it, and its context may not have been whole in the first.
            wait_until(lambda: share(daemon, "a")["usage"] == CHARGED, "it is charged")
            assert within_two_seconds(daemon) == {(CHARGED, 0)}
            neighbour = Process(daemon.container("b", memory="10g"))
            neighbour.hello()
            assert neighbour.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc")) == m.Accepted(9 * GIB, 0)
            assert (program.poll(), stopped(daemon)) == (None, [])


def test_managed_memory_of_hooked_programs_is_theirs_whatever_others_take(
    tmp_path: Path, make_cgroup: Callable[[], Path]
) -> None:
    """It is accounted for; that somebody else's is on the device too is not its doing."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        folder, mine, others = daemon.container("a", memory="6g"), make_cgroup(), make_cgroup()
        daemon.container("b", memory="6g")
        listed(daemon, (mine, "a"), (others, "b"))
        with running(daemon, mine, 4, 1, hook=folder) as program:
            wait_until(lambda: share(daemon, "a")["usage"] > 5 * GIB, "it is charged")
            before = share(daemon, "a")["usage"]
            with running(daemon, others, 5):
                wait_until(lambda: share(daemon, "b")["usage"] > 5 * GIB, "another's is charged, too")
                assert within_two_seconds(daemon) == {(before, 0)}
            assert (program.poll(), stopped(daemon)) == (None, [])


def test_what_the_hook_accounts_for_and_what_is_taken_past_it_count_together(tmp_path: Path, cgroup: Path) -> None:
    """Both are kept from others, wherever the memory is: managed memory is listed for nobody."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        folder = daemon.container("a", memory="7g")
        listed(daemon, (cgroup, "a"))
        with running(daemon, cgroup, 5, hook=folder) as hooked, running(daemon, cgroup, 0, 3) as other:
            wait_until(lambda: None not in {hooked.poll(), other.poll()}, "they are ended")
        assert stopped(daemon) == [("a", "overuse")]
        assert all(event["size"] > 7 * GIB for event in daemon.events("overused"))


def test_managed_memory_on_one_device_is_nobodys_on_another(tmp_path: Path, make_cgroup: Callable[[], Path]) -> None:
    """Where somebody was above a limit, that device is looked at alone: what others have on other ones is theirs."""
    options = ["--audit=3s", "--overuse-after=300ms", "--overuse=stop"]
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", *options) as daemon:
        one, other = (each["uuid"] for each in daemon.admin.request("devices")["devices"])
        innocent = daemon.container("a", memory=f"{one}:6g,{other}:1g")
        daemon.container("b", memory="6g", gpus="1")
        daemon.container("c", memory="3g", gpus="1")
        mine, others, greedy = make_cgroup(), make_cgroup(), make_cgroup()
        listed(daemon, (mine, "a"), (others, "b"), (greedy, "c"))
        with running(daemon, mine, 4, hook=innocent) as program, running(daemon, others, 5, device=1):
            with running(daemon, greedy, 0, 5, device=1) as overuser:
                wait_until(lambda: overuser.poll() is not None, "it is ended")
            begun = time.monotonic()
            wait_until(lambda: time.monotonic() - begun > 2.0, "the device is looked at alone")
            assert (program.poll(), stopped(daemon)) == (None, [("c", "overuse")])
