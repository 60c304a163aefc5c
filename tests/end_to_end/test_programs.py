"""Unchanged programs, the real hook, the real scheduler, the simulated driver; plain processes for containers."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, Daemon, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused

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
    assert usage(daemon, "a") <= 8 * GIB

    def agree() -> bool:
        """Whether both figures are the same; those that were rejected may just be ending between the two questions."""
        [device] = daemon.admin.request("devices")["devices"]
        return device["used"] == usage(daemon, "a")

    wait_until(agree, "the device and the container have the same figure")
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
    wait_until(lambda: daemon.state("waiter")["state"] == "waiting", "the waiter waits again")
    wait_until(lambda: usage(daemon, "holder") == CONTEXT + 9 * GIB, "the holder is back")
    assert usage(daemon, "waiter") == CONTEXT
    assert holder.finish() == (0, "")
    assert waiter.line("allocate")[3] == "CUDA_SUCCESS"
    assert waiter.finish()[0] == 0  # on a slow machine it says meanwhile that it waits


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


# -- containers that start whole, gangs, contexts ------------------------------------------------------------


def waits_without_memory(state: Daemon, name: str, reason: str) -> None:
    wait_until(lambda: bool(state.state(name)["waiting"]), f"{name} waits")
    [waiting] = state.state(name)["waiting"]
    assert (waiting["reason"], waiting["call"]) == (reason, "cuDevicePrimaryCtxRetain")
    assert usage(state, name) == 0


def test_a_whole_container_waits_before_its_context(daemon: Daemon, run) -> None:
    holder = run(daemon.container("holder", memory="12g"), "10g")
    holder.line("hold")
    whole = run(daemon.container("whole", memory="8g", admit="whole"), "1g")
    waits_without_memory(daemon, "whole", "memory")
    assert daemon.state("whole")["admit"] == "whole"
    holder.finish()
    whole.line("hold")
    assert daemon.state("whole")["devices"][0]["grant"] == 8 << 30


def test_gangs_start_one_after_the_other_and_as_a_whole(daemon: Daemon, run) -> None:
    folders: dict[str, Path] = {}
    for name in ("a0", "a1", "b0", "b1"):
        folders[name] = daemon.container(name, memory="6g", gang=f"{name[0]}:2")
    first = run(folders["a0"], "5g")
    waits_without_memory(daemon, "a0", "gang")
    second = run(folders["b0"], "5g")
    waits_without_memory(daemon, "b0", "gang")
    for program in (run(folders["a1"], "5g"), first):
        program.line("hold")
    last = run(folders["b1"], "5g")
    waits_without_memory(daemon, "b1", "memory")
    first.finish()
    waits_without_memory(daemon, "b0", "memory")
    for program in (second, last):
        assert program.process.poll() is None
    daemon.admin.request("unmount", name="a0", id="1")
    # a1 holds its whole limit still: b fits only when that has ended too.
    assert usage(daemon, "a1") == CONTEXT + (5 << 30)


def test_a_gang_that_could_never_be_had_is_refused_with_the_figure(daemon: Daemon) -> None:
    daemon.container("a0", memory="12g", gang="a")
    with pytest.raises(SchedulerRefused, match="the largest limit that fits is memory=4096m"):
        daemon.container("a1", memory="6g", gang="a")


def test_contexts_of_those_that_would_wait_anyway_take_nothing(daemon: Daemon, run) -> None:
    run(daemon.container("holder", memory="12g"), "11g").line("hold")
    names = [f"c{number}" for number in range(4)]
    for name in names:
        run(daemon.container(name, memory="9g"), "8g")
        wait_until(lambda name=name: bool(daemon.state(name)["waiting"]), f"{name} waits")
    assert [usage(daemon, name) for name in names] == [CONTEXT, 0, 0, 0]
