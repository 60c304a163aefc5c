"""Memory of programs that began and ended between two audits, and that others keep; on the simulated driver."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemon import CONTEXT, GIB, Daemon, running_daemon, wait_until

from convgpu.daemon.system.births.fork_events import ForkEvents

SIZE = 3 * GIB + CONTEXT
# A child takes 3 GiB past the hook, makes a child of its own that has its descriptors, and ends; all within some ms.
PROGRAM = """
import ctypes, os, signal, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
sys.stdin.readline()
if os.fork() == 0:
    assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
    assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(3 << 30)) == 0
    if os.fork() == 0:
        signal.pause()
    os._exit(0)
os.wait()
print("done", flush=True)
signal.pause()
"""


@contextmanager
def program(daemon: Daemon, cgroup: Path) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM, str(cgroup)]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            for pid in (cgroup / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)


def test_memory_that_a_short_program_took_past_the_hook_is_its_containers(tmp_path: Path, cgroup: Path) -> None:
    try:
        ForkEvents().close()
    except OSError as error:
        pytest.skip(f"the kernel does not tell of processes here: {error}")
    options = ["--audit=100ms", "--overuse-after=300ms", "--overuse=stop"]
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        daemon.container("a", memory="1g")
        row = {"id": cgroup.name, "name": "a", "state": "running", "volumes": ["a"]}
        daemon.admin.request("listed", asked=time.time(), containers=[row], volumes=["a"])
        with program(daemon, cgroup) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
            wait_until(lambda: daemon.events("stopped"), "its container is ended")
            assert (daemon.events("overused")[0]["container"], process.wait()) == ("a", -signal.SIGKILL)
