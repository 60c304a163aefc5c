"""Unchanged programs, the real hook, the real scheduler, the simulated driver; plain processes for containers."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, Daemon, running_daemon, wait_until

HOLD = DRIVER / "gpu-hold"
CONTEXT = 526 << 20


class Program:
    """gpu-hold in a container's place; it keeps its memory until `finish`."""

    def __init__(self, folder: Path, *words: str) -> None:
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(folder / "driver"),
            "LD_PRELOAD": str(folder / "libconvgpu.so"),
        }
        self.process = subprocess.Popen(
            [HOLD, "--wait-for-stdin", *words],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self, word: str) -> list[str]:
        """Wait for the line that begins, behind its time, with `word`."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if text.split()[1] == word:
                return text.split()
        raise AssertionError(f"never said {word}: {self.process.communicate()[1]}")

    def finish(self) -> tuple[int, str]:
        """Let it end; return its exit code and what it said on stderr."""
        _, errors = self.process.communicate("")
        return self.process.returncode, errors

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    try:
        yield started
    finally:
        for program in started:
            program.kill()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d") as daemon:
        yield daemon


@pytest.fixture
def run() -> Iterator[object]:
    with programs() as started:

        def start(folder: Path, *words: str) -> Program:
            started.append(Program(folder, *words))
            return started[-1]

        yield start


def usage(daemon: Daemon, name: str) -> int:
    return daemon.state(name)["devices"][0]["usage"]


def test_paused_in_the_middle_and_going_on_when_the_holder_is_killed(daemon: Daemon, run) -> None:
    holder = run(daemon.container("holder", memory="10g"), "9g")
    holder.line("hold")
    waiter = run(daemon.container("waiter", memory="10g"), "--steps", "4", "8g")
    wait_until(lambda: daemon.state("waiter")["state"] == "waiting", "the waiter waits")
    assert usage(daemon, "waiter") == CONTEXT + 4 * GIB
    holder.kill()
    waiter.line("hold")
    assert usage(daemon, "waiter") == CONTEXT + 8 * GIB
    assert waiter.finish() == (0, "")
    assert [event["kind"] for event in daemon.events("paused", "granted", "rejected")] == ["paused", "granted"]


def test_beyond_the_limit_is_out_of_memory_at_once(daemon: Daemon, run) -> None:
    program = run(daemon.container("a", memory="2g"), "3g")
    code, errors = program.finish()
    assert code == 3
    assert "it would exceed the limit" in errors
    [rejected] = daemon.events("rejected")
    assert (rejected["size"], rejected["call"], rejected["reason"]) == (3 * GIB, "cuMemAlloc", "limit")


def test_processes_of_one_container_never_take_the_last_bytes_twice(daemon: Daemon, run) -> None:
    folder = daemon.container("a", memory="8g")
    started = [run(folder, "--steps", "8", "1g") for _ in range(8)]
    for program in started:
        with contextlib.suppress(AssertionError):
            program.line("hold")
    held = usage(daemon, "a")
    assert held <= 8 * GIB
    [device] = daemon.admin.request("devices")["devices"]
    assert device["used"] == held
    codes = [program.finish()[0] for program in started]
    assert set(codes) == {0, 3}, "8 x 1.5 GiB do not all fit, and some do"
    assert codes.count(3) == len(daemon.events("rejected"))


def test_a_killed_scheduler_stops_nobody_and_the_next_one_knows_what_is_used(daemon: Daemon, run) -> None:
    holder = run(daemon.container("holder", memory="10g"), "9g")
    holder.line("hold")
    folder = daemon.container("waiter", memory="10g")
    waiter = run(folder, "8g")
    wait_until(lambda: daemon.state("waiter")["state"] == "waiting", "the waiter waits")
    daemon.kill()
    daemon.start()
    wait_until(lambda: len(daemon.events("paused")) == 1, "the waiter waits again")
    wait_until(lambda: usage(daemon, "holder") == CONTEXT + 9 * GIB, "the holder is back")
    assert usage(daemon, "waiter") == CONTEXT
    assert holder.finish() == (0, "")
    assert waiter.line("allocate")[3] == "CUDA_SUCCESS"
    assert waiter.finish() == (0, "")


def test_the_ledger_says_what_the_drivers_own_count_says(daemon: Daemon, run) -> None:
    program = run(daemon.container("a", memory="10g"), "3g", "100m", "5m")
    program.line("hold")
    script = (
        "import ctypes, sys, pynvml\n"
        "ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)\n"
        "pynvml.nvmlInit()\n"
        "handle = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "print([row.usedGpuMemory for row in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)])\n"
    )
    library = daemon.directory / "driver/libnvidia-ml.so.1"
    seen = subprocess.check_output([sys.executable, "-c", script, str(library)], text=True)
    assert seen.strip() == str([usage(daemon, "a")])


def test_without_a_scheduler_cuda_says_so_in_one_line(daemon: Daemon, run) -> None:
    folder = daemon.container("a", memory="2g")
    assert daemon.stop() == 0
    code, errors = run(folder, "1g").finish()
    assert code == 1
    lines = [line for line in errors.splitlines() if line.startswith("convgpu: ")]
    assert len(lines) == 1
    assert "scheduler" in lines[0]
