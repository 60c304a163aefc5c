"""Programs of containers that are made of a cgroup and a PID namespace, on the simulated driver."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from daemon import Daemon, wait_until

TAKE = """
import ctypes, os, signal, socket, sys, time
def take(size):
    cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
    assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(size << 30)) == 0
def enter(cgroup):
    open(cgroup + "/cgroup.procs", "w").write(str(os.getpid()))
"""


@contextmanager
def program(daemon: Daemon, source: str, cgroup: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment, pipe = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}, subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", source, *arguments], env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1
    ) as process:
        try:
            yield process
        finally:
            for pid in (cgroup / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):  # it is being ended already
                    os.kill(int(pid), signal.SIGKILL)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@contextmanager
def first_process() -> Iterator[int]:
    """A process that is the first one of a PID namespace."""
    with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "600"]) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(children.read_text, "it has begun")
        try:
            yield int(children.read_text())
        finally:
            process.kill()
