"""The porter's process as the scheduler sees it: it may end at any time, and it may not end when it is killed.

What keeps it here is a tracer: the kernel tells the parent of a traced process's end only after the tracer has looked.
"""

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from daemon import Daemon, elastic_process, running_daemon, wait_until

from convgpu.daemon.residency.pool_files import PoolFiles
from convgpu.daemon.residency.porter import Porter, PorterFiles

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SEIZE = 0x4206

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tracing a process that is no child of ours needs root")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A scheduler with a porter."""
    with running_daemon(tmp_path / "d") as daemon:
        elastic_process(daemon, "c", "1g")
        wait_until(lambda: bool(porters(daemon)), "a porter runs")
        yield daemon


def porters(daemon: Daemon) -> list[int]:
    """Return the pids of all that were started."""
    return [int(pid) for pid in re.findall(r"the porter runs pid=(\d+)", daemon.log.read_text())]


@contextlib.contextmanager
def not_reapable(pid: int) -> Iterator[None]:
    """Keep the parent of a process from reaping it, however it ends."""
    assert _LIBC.ptrace(_SEIZE, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)  # a signal to one that has ended is no error before it is reaped
        while os.WIFSTOPPED(os.waitpid(pid, 0)[1]):
            pass


def test_a_scheduler_ends_although_its_porter_does_not(daemon: Daemon) -> None:
    [porter] = porters(daemon)
    following = daemon.admin.request("events")["next"]
    with not_reapable(porter):
        assert daemon.stop() == 0
    assert f"the porter pid={porter} was killed and has not ended" in daemon.log.read_text()
    with contextlib.closing(sqlite3.connect(daemon.directory / "state.db")) as database:
        [(saved,)] = database.execute("SELECT value FROM settings WHERE name = 'next event'")
    assert int(saved) >= int(str(following))


def test_a_killed_porter_that_does_not_end_holds_nobody_up_and_is_reaped_in_the_end(daemon: Daemon) -> None:
    [first] = porters(daemon)
    with not_reapable(first):
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(porters(daemon)) == 2, "another porter runs")
        assert daemon.state("c")["name"] == "c"
        assert "the porter has ended (status not known yet); another one starts in 0.1 s" in daemon.log.read_text()
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "the first porter is reaped")


def test_without_a_thread_to_wait_for_it_the_scheduler_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    process = Mock(spec=subprocess.Popen, pid=1)
    process.wait.side_effect = subprocess.TimeoutExpired("porter", 0)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def stop() -> None:
        files = PorterFiles(Path("/nonexistent"), "", PoolFiles(tmp_path / "pool/pool"))
        porter = Porter(asyncio.get_running_loop(), files, print, print)
        porter._process = process
        porter.stop()

    asyncio.run(stop())
    process.kill.assert_called_once_with()
