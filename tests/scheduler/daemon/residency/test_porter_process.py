"""The porter's process as the scheduler sees it: it may end at any time, and it may not end when it is killed.

What keeps it here is a tracer: the kernel tells the parent of a traced process's end only after the tracer has looked.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from daemon import Daemon, elastic_process, running_daemon, wait_until

from convgpu.daemon.residency import porter as module
from convgpu.daemon.residency.pool_files import PoolFiles
from convgpu.daemon.residency.porter import Porter, PorterFiles
from convgpu.protocol.residency.porter import PorterKind

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SEIZE = 0x4206

traces = pytest.mark.skipif(os.geteuid() != 0, reason="tracing a process that is no child of ours needs root")


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


@traces
def test_a_scheduler_ends_although_its_porter_does_not(daemon: Daemon) -> None:
    [porter] = porters(daemon)
    following = daemon.admin.request("events")["next"]
    with not_reapable(porter):
        assert daemon.stop() == 0
    assert f"the porter pid={porter} was killed and has not ended" in daemon.log.read_text()
    with contextlib.closing(sqlite3.connect(daemon.directory / "state.db")) as database:
        [(saved,)] = database.execute("SELECT value FROM settings WHERE name = 'next event'")
    assert int(saved) >= int(str(following))


@traces
def test_a_killed_porter_that_does_not_end_holds_nobody_up_and_is_reaped_in_the_end(daemon: Daemon) -> None:
    [first] = porters(daemon)
    with not_reapable(first):
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(porters(daemon)) == 2, "another porter runs")
        assert daemon.state("c")["name"] == "c"
        assert "the porter has ended (status not known yet); another one starts in 0.1 s" in daemon.log.read_text()
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "the first porter is reaped")


async def pauses(program: Path, directory: Path) -> list[float]:
    """Start a porter three times that ends by itself; return the pauses before each further start."""
    said: list[float] = []
    third = asyncio.Event()

    class Ends(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if str(record.msg).startswith("the porter has ended"):
                assert isinstance(record.args, tuple)
                said.append(record.args[1])
            if len(said) == 3:
                third.set()

    handler = Ends()
    porter = Porter(asyncio.get_running_loop(), PorterFiles(program, "", PoolFiles(directory / "pool")), print, print)
    module.log.addHandler(handler)
    try:
        porter.start()
        await asyncio.wait_for(third.wait(), 120)
    finally:
        porter.stop()
        module.log.removeHandler(handler)
    return said


def test_a_porter_that_never_served_starts_ever_more_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it ran: ten seconds are what it waits for the pool of another one."""
    monkeypatch.setattr(module, "STEADY", 0.0)
    assert asyncio.run(pauses(Path("/bin/false"), tmp_path / "p")) == [0.1, 0.2, 0.4]


def test_a_porter_that_served_starts_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEADY", 0.0)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    program = tmp_path / "porter"
    report = struct.pack("=IIQQ", PorterKind.POOLED, 0, 0, 0)
    write = f"import os, sys\nos.write(int(sys.argv[1].partition('=')[2]), {report!r})\n"
    program.write_text(f"#!{sys.executable} -IS\n{write}")
    program.chmod(0o755)
    assert asyncio.run(pauses(program, tmp_path / "p")) == [0.01] * 3


def test_a_porter_that_nobody_needs_gives_the_devices_their_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One container whose memory could leave had 526 MiB of each GPU until the scheduler was started again."""
    monkeypatch.setattr(module, "RESTING", 0.0)
    program = tmp_path / "porter"
    program.write_text(f"#!{sys.executable} -IS\nimport os, sys\nos.read(int(sys.argv[1].partition('=')[2]), 1)\n")
    program.chmod(0o755)

    async def check() -> None:
        loop = asyncio.get_running_loop()
        porter = Porter(loop, PorterFiles(program, "", PoolFiles(tmp_path / "p/pool")), print, lambda: None)
        for is_needed in (True, False):
            porter.start()
            process = porter._process
            assert process is not None
            asked = asyncio.Event()

            def answer(answer: bool = is_needed, asked: asyncio.Event = asked) -> bool:
                asked.set()
                return answer

            porter.rest(answer)
            await asked.wait()
            assert porter.runs == is_needed
        assert await asyncio.to_thread(process.wait) == 0
        porter.start()  # for the next process
        assert porter.runs
        porter.stop()

    asyncio.run(check())


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
