"""Memory of programs that began and ended between two audits, and that others keep; on the simulated driver."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from daemon import CONTEXT, GIB, Daemon, running_daemon, wait_until

from convgpu.daemon.system.births.origins import Origins

SIZE = 3 * GIB + CONTEXT
# A child takes 3 GiB past the hook, makes a child of its own that has its descriptors, and ends; all within some ms. It
# has the process ID that it is told.
PROGRAM = """
import ctypes, os, signal, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
wanted = int(sys.stdin.readline())
for _ in range(1000):  # somebody may have got it just now, and stay
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(wanted - 1))
    if os.fork() == 0:
        break
    if os.wait()[1] == 0:
        print("done", flush=True)
        signal.pause()
else:
    sys.exit(f"somebody else has {wanted}")
if os.getpid() == wanted:
    assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
    assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(3 << 30)) == 0
    if os.fork() == 0:
        signal.pause()
    os._exit(0)
os._exit(1)
"""


# Children take 3 GiB past the hook, one after another: each ends at once, and one of its own keeps that for 0.6 s.
CHAIN = """
import ctypes, os, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
sys.stdin.readline()
while True:
    if os.fork() == 0:
        assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
        assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(3 << 30)) == 0
        if os.fork() == 0:
            time.sleep(0.6)
        os._exit(0)
    os.wait()
    time.sleep(0.6)
"""


@contextmanager
def program(daemon: Daemon, cgroup: Path, source: str = PROGRAM) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", source, str(cgroup)]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            for pid in (cgroup / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def pid_of_the_dead(cgroup: Path) -> int:
    """Return the process ID of a program of a container that has ended; the scheduler has had time to see that."""
    command = ["/bin/sh", "-c", f"echo $$ > {cgroup}/cgroup.procs; read go; /bin/true & echo $!; wait; read go"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        let_it_look(1.0)
        process.stdin.write("go\n")
        pid = int(process.stdout.readline())
        let_it_look(2.0)
        return pid


def let_it_look(seconds: float) -> None:
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > seconds, "it has looked")


def free_pid() -> int:
    """Return a process ID that nobody has had for long, if the kernel goes on as it does."""
    last, most = (int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("ns_last_pid", "pid_max"))
    return last + 500 if last + 500 < most else 500


def say_it_runs(daemon: Daemon, cgroup: Path) -> None:
    row = {"id": cgroup.name, "name": "a", "state": "running", "volumes": ["a"]}
    daemon.admin.request("listed", asked=time.time(), containers=[row], volumes=["a"])


@pytest.fixture(autouse=True)
def _births() -> None:
    origins = Origins()
    try:
        origins.open()
        origins.close()
    except OSError as error:
        pytest.skip(f"the kernel does not tell of processes here: {error}")


def ends_who_took_memory(directory: Path, make_cgroup: Callable[[], Path], *, again: bool) -> bool:
    """Let a short program take memory past the hook; say whether its container is ended for it."""
    options = ["--audit=1s", "--overuse-after=2s", "--overuse=stop"]
    with running_daemon(directory, "simulated:16GiB", *options) as daemon:
        daemon.container("a", memory="1g")
        cgroup = make_cgroup()
        say_it_runs(daemon, cgroup)
        with program(daemon, cgroup) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            let_it_look(2.0)  # of what its first look shows, nobody knows who had the process ID before
            pid = pid_of_the_dead(make_cgroup()) if again else free_pid()
            process.stdin.write(f"{pid}\n")
            process.stdin.flush()
            if process.stdout.readline() != "done\n":
                return False
            try:
                wait_until(lambda: daemon.events("stopped"), "its container is ended", 40)
            except AssertionError:
                return False
            assert (daemon.events("overused")[0]["container"], process.wait()) == ("a", -signal.SIGKILL)
            return True


@pytest.mark.parametrize("again", [False, True])
def test_memory_that_a_short_program_took_past_the_hook_is_its_containers(
    tmp_path: Path, make_cgroup: Callable[[], Path], again: bool
) -> None:
    """Also if its process ID was that of another container's before; a busy machine may not have looked in time."""
    assert any(ends_who_took_memory(tmp_path / f"d{number}", make_cgroup, again=again) for number in range(3))


def test_programs_that_end_one_after_another_do_not_hold_memory_together(tmp_path: Path, cgroup: Path) -> None:
    """At each look one ended just now, whose memory is kept for a moment more."""
    options = ["--audit=1s", "--overuse-after=2s", "--overuse=stop"]
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        daemon.container("a", memory="1g")
        say_it_runs(daemon, cgroup)
        with program(daemon, cgroup, CHAIN) as process:
            let_it_look(2.0)
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            wait_until(lambda: daemon.events("stopped"), "its container is ended")
            assert process.wait() == -signal.SIGKILL
