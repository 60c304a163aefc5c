"""Whoever waits is told: what a paused program says on stderr, and how it is interrupted. Real hook, real scheduler."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, Daemon, running_daemon, wait_until

HOLD = DRIVER / "gpu-hold"
# An unchanged Python program: allocates argv[1] bytes on each of argv[2] threads, and says what came of it.
PYTHON = """
import ctypes, os, sys, threading
cuda = ctypes.PyDLL("libcuda.so.1") if "gil" in sys.argv else ctypes.CDLL("libcuda.so.1")
context, results = ctypes.c_void_p(), []
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
def work():
    cuda.cuCtxSetCurrent(context)
    pointer = ctypes.c_void_p()
    ctypes.set_errno(7)
    results.append(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[1]))))
if "other" in sys.argv:
    import signal
    signal.signal(signal.SIGUSR2, lambda *_: None)
if "closed" in sys.argv:
    os.close(2)
    assert os.open("data", os.O_RDWR | os.O_CREAT, 0o600) == 2
print("ready", flush=True)
try:
    for _ in range(3 if "again" in sys.argv else 1):  # as allocators do
        threads = [threading.Thread(target=work) for _ in range(int(sys.argv[2]) - 1)]
        for thread in threads: thread.start()
        work()
        for thread in threads: thread.join()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(sorted(results), flush=True)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d", "simulated:8GiB", "--notice=200ms") as daemon:
        yield daemon


def start(folder: Path, *words: str, **variables: str) -> "subprocess.Popen[str]":
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(folder / "driver"),
        "LD_PRELOAD": str(folder / "libconvgpu.so"),
        **variables,
    }
    return subprocess.Popen(
        words,
        env=environment,
        cwd=folder.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def holder(daemon: Daemon) -> Iterator["subprocess.Popen[str]"]:
    """A container that holds 6 of the 8 GiB."""
    folder = daemon.container("holder", memory="7g")
    with start(folder, str(HOLD), "--wait-for-stdin", "6g") as process:
        wait_until(lambda: daemon.state("holder")["devices"][0]["usage"] > 6 * GIB, "the holder holds")
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def waiter(
    daemon: Daemon, *words: str, threads: int = 1, wait: str = "", **variables: str
) -> Iterator["subprocess.Popen[str]"]:
    options = {"wait": wait} if wait else {}
    folder = daemon.container("waiter", memory="7g", **options)
    size = str(3 * GIB // threads)
    with start(folder, sys.executable, "-c", PYTHON, size, str(threads), *words, **variables) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def is_paused(daemon: Daemon, threads: int = 1) -> bool:
    return len(daemon.state("waiter")["waiting"]) == threads


def test_a_pause_and_its_end_are_one_line_each(daemon: Daemon) -> None:
    with holder(daemon) as held, waiter(daemon, wait="10m") as process:
        said = line_of(process)
        assert said.startswith("convgpu: paused: cuMemAlloc waits for 3GiB of GPU 0 since ")
        assert " UTC behind holder (" in said
        assert said.endswith(" UTC (wait)\n")
        [row] = daemon.state("waiter")["waiting"]
        assert row["deadline"] == pytest.approx(row["since"] + 600)
        [event] = [event for event in daemon.events("paused") if event["container"] == "waiter"]
        assert (event["reason"], event["behind"]) == ("memory", ["holder"])
        held.communicate("")
        output, errors = process.communicate()
    assert output == "[0]\n"
    assert errors.startswith("convgpu: goes on after ")
    assert errors.endswith(" s: cuMemAlloc of 3GiB.\n")


def test_many_threads_of_one_cause_say_it_once(daemon: Daemon) -> None:
    with holder(daemon) as held, waiter(daemon, threads=4) as process:
        said = line_of(process)
        wait_until(lambda: is_paused(daemon, 4), "they are paused")
        held.communicate("")
        output, errors = process.communicate()
    assert output == "[0, 0, 0, 0]\n"
    assert said.startswith("convgpu: paused: ")
    [end] = errors.splitlines()
    assert end.startswith("convgpu: goes on after ")


@pytest.mark.parametrize("words", [("never",), ("closed",)])
def test_silence(daemon: Daemon, words: tuple[str, ...]) -> None:
    """Of one who wants none, and of one whose descriptor 2 is a file of its own by now."""
    variables = {"CONVGPU_NOTICE": "never"} if words == ("never",) else {}
    with holder(daemon) as held, waiter(daemon, *words, **variables) as process:
        wait_until(lambda: is_paused(daemon), "it is paused")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)  # what would be said comes after 0.2 s
        held.communicate("")
        assert process.communicate() == ("[0]\n", "")
    if words == ("closed",):
        assert [path.read_bytes() for path in daemon.directory.rglob("data") if path.is_file()] == [b""]


def interrupt(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Press Ctrl-C once."""
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=120)


@pytest.mark.parametrize("gil", ["gil", "free"])
def test_ctrl_c_ends_a_pause_and_the_python_program(daemon: Daemon, gil: str) -> None:
    with holder(daemon), waiter(daemon, gil, "again") as process:
        wait_until(lambda: is_paused(daemon), "it is paused")
        output, errors = interrupt(process)
        assert output.splitlines()[0] == "interrupted"
        assert "the program was interrupted while it was paused" in errors
        assert [event["reason"] for event in daemon.events("rejected")] == ["interrupted"]
    assert daemon.state("waiter")["waiting"] == []


def test_a_signal_that_may_be_another_one_changes_nothing(daemon: Daemon) -> None:
    """A handler without SA_RESTART for another signal: nobody can tell which of them came."""
    with holder(daemon) as held, waiter(daemon, "other") as process:
        wait_until(lambda: is_paused(daemon), "it is paused")
        process.send_signal(signal.SIGUSR2)
        process.send_signal(signal.SIGCONT)
        assert line_of(process).startswith("convgpu: paused: ")
        assert is_paused(daemon)
        held.communicate("")
        assert process.communicate()[0] == "[0]\n"


def test_ctrl_c_without_a_scheduler_ends_the_pause_too(daemon: Daemon) -> None:
    with holder(daemon), waiter(daemon) as process:
        wait_until(lambda: is_paused(daemon), "it is paused")
        daemon.kill()
        assert interrupt(process)[0].splitlines()[0] == "interrupted"
        daemon.start()
