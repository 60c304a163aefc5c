"""The audit of a real scheduler: programs outside, and programs that escape the hook, on the simulated driver."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from daemon import CONTEXT, DRIVER, GIB, Daemon, Process, running_daemon, wait_until

from convgpu.daemon.system.procfs import is_alive
from convgpu.protocol import messages as m

HOLD = DRIVER / "gpu-hold"
MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=100ms") as daemon:
        yield daemon


@contextmanager
def running(folder: Path, *script: str, apart: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A shell, in a pid namespace of its own or not; `$HOOK` is the hook of a container's folder."""
    prefix = ["unshare", "--pid", "--fork", "--kill-child"] if apart else []
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder / "driver"), "HOOK": str(folder / "libconvgpu.so")}
    command = [*prefix, "bash", "-c", " ".join(script)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def device(daemon: Daemon) -> dict[str, int]:
    return daemon.admin.request("devices")["devices"][0]


def share(daemon: Daemon, name: str) -> dict[str, int]:
    return daemon.state(name)["devices"][0]


def is_exact(share: dict[str, int]) -> bool:
    return share["seen"] == share["usage"] > GIB


HOOKED = f"tail -f /dev/null | LD_PRELOAD=$HOOK {HOLD} --wait-for-stdin 1g &"
# Once it is told so: else the audit can be first, and the hooked one has no room.
ESCAPED = f"read go; tail -f /dev/null | {HOLD} --wait-for-stdin 3g & wait"


def let_escape(daemon: Daemon, program: subprocess.Popen[bytes]) -> None:
    """Let a program of container "a" take memory past the hook, once another one has its own by the hook."""
    wait_until(lambda: is_exact(share(daemon, "a")), "the hooked one holds its memory")
    assert program.stdin is not None
    program.stdin.write(b"go\n")
    program.stdin.flush()


def test_memory_of_foreign_programs_is_not_handed_out(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="14g")
    with running(folder, f"exec {HOLD} --wait-for-stdin 5g"):
        wait_until(lambda: device(daemon)["external"] > 5 * GIB, "it is seen")
        assert device(daemon)["capacity"] == 16 * GIB - device(daemon)["external"]
        process = Process(folder)
        process.hello()
        request = process.allocate(12 * GIB)
        wait_until(lambda: daemon.state("a")["state"] == "waiting", "a waits")
    assert process.answer(request) == m.Accepted(12 * GIB, 0)
    wait_until(lambda: (device(daemon)["external"], device(daemon)["capacity"]) == (0, 16 * GIB), "it is given back")
    assert daemon.events("overused") == []


def test_a_limit_that_comes_later_is_held_against_what_there_is_then(daemon: Daemon) -> None:
    folder = daemon.container("a")
    with running(folder, f"exec {HOLD} --wait-for-stdin 5g"):
        wait_until(lambda: device(daemon)["external"] > 5 * GIB, "it is seen")
        daemon.container("late")
        daemon.container("later")
    wait_until(lambda: device(daemon)["external"] == 0, "it is given back")
    daemon.admin.request("set", name="late", memory="14g")
    assert share(daemon, "late")["limit"] == 14 * GIB
    assert Process(Path(str(daemon.state("later")["mountpoint"]))).hello(memory="14g").devices[0].limit == 14 * GIB


def test_a_container_without_a_limit_is_named_once(daemon: Daemon, cgroup: Path) -> None:
    folder = daemon.container("a", memory="2g")
    held = f"container {cgroup.name} holds {GIB + CONTEXT} bytes of {device(daemon)['uuid']}, where it has no limit"
    with running(folder, f"echo $$ >{cgroup}/cgroup.procs;", f"exec {HOLD} --wait-for-stdin 1g") as stranger:
        wait_until(lambda: held in daemon.log.read_text(), "it is said")
        assert device(daemon)["external"] > GIB
        audits = daemon.log.read_text().count("external=")
        daemon.container("b", memory="2g")
        stranger.communicate()
    wait_until(lambda: daemon.log.read_text().count("external=") > audits, "it is given back")
    assert daemon.log.read_text().count("where it has no limit") == 1


@needs_root
def test_what_escapes_the_hook_is_charged_to_its_container_and_shown(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="8g")
    other = daemon.container("b", memory="13g")
    with running(folder, HOOKED, ESCAPED, apart=True) as program:
        let_escape(daemon, program)
        wait_until(lambda: share(daemon, "a")["usage"] > 4 * GIB, "it is charged")
        a = share(daemon, "a")
        assert a["usage"] == a["seen"] > 4 * GIB + 800 * MIB, a
        assert (device(daemon)["external"], device(daemon)["health"]) == (0, "ok")
        process = Process(other)
        process.hello()
        request = process.allocate(12 * GIB)
        wait_until(lambda: daemon.state("b")["state"] == "waiting", "b waits")
        assert daemon.events("overused") == []  # within its limit
    answer = process.answer(request)
    assert isinstance(answer, m.Accepted)
    wait_until(lambda: share(daemon, "a")["usage"] == 0, "nothing is charged")


@needs_root
@pytest.mark.parametrize(
    ("overuse", "mode", "stops"),
    [("warn", "strict", False), ("stop", "enforce", True), ("auto", "strict", True), ("auto", "enforce", False)],
)
def test_a_container_that_stays_above_its_limit(tmp_path: Path, overuse: str, mode: str, stops: bool) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(f'mode = "{mode}"\n')
    options = ["--audit=100ms", f"--overuse={overuse}", f"--rules={rules}", "--overuse-after=300ms"]
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        folder = daemon.container("a", memory="3g")
        other = daemon.container("b", memory="2g")
        with (
            running(other, HOOKED, "wait", apart=True) as neighbour,
            running(folder, f"exec {HOLD} --wait-for-stdin 1g") as foreigner,
            running(folder, HOOKED, ESCAPED, apart=True) as greedy,
        ):
            wait_until(lambda: is_exact(share(daemon, "b")), "the neighbour holds its memory")
            let_escape(daemon, greedy)
            wait_until(lambda: bool(daemon.events("overused")), "it is noticed")
            [event] = daemon.events("overused")
            assert (event["container"], event["size"] > 3 * GIB) == ("a", True)
            if stops:
                wait_until(lambda: greedy.poll() is not None, "all its processes are ended")
                assert daemon.events("stopped")[0]["container"] == "a"
                wait_until(lambda: share(daemon, "a")["usage"] == 0, "its memory is handed on")
            else:
                begun = time.monotonic()
                wait_until(lambda: time.monotonic() - begun > 0.5, "it would have been ended by now")
                told = daemon.log.read_text().count("more than its limit")
                assert (told, greedy.poll(), daemon.events("stopped")) == (1, None, [])
            assert (neighbour.poll(), foreigner.poll()) == (None, None)
            assert is_exact(share(daemon, "b"))


@needs_root
def test_a_container_that_pauses_above_its_limit_is_ended_all_the_same(tmp_path: Path) -> None:
    options = ["--audit=50ms", "--overuse=stop", "--overuse-after=1s"]
    bursts = f"while :; do {HOLD} --hold 0.4 3g; sleep 0.5; done"
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        folder = daemon.container("a", memory="2g")
        with running(folder, HOOKED, bursts, apart=True) as greedy:
            wait_until(lambda: greedy.poll() is not None, "all its processes are ended")
        # On a slow machine looks can miss it for some seconds: then it is told again.
        overused, [stopped] = daemon.events("overused")[0], daemon.events("stopped")
        assert (stopped["container"], stopped["reason"]) == ("a", "overuse")
        # Without a pause that an audit saw, it would have been a second.
        assert float(str(stopped["time"])) - float(str(overused["time"])) > 1.15


@needs_root
def test_the_time_that_one_took_is_not_given_to_the_next(tmp_path: Path) -> None:
    """Of rings that stop sooner, test_overuse.py tells with a clock of its own."""
    options = ["--audit=100ms", "--overuse=stop", "--overuse-after=4s", "--simulated-settle=0"]
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        for number in range(3):
            folder = daemon.container(f"c{number}", memory="2g")
            with running(folder, HOOKED, f"tail -f /dev/null | {HOLD} --wait-for-stdin 7g", apart=True) as greedy:
                wait_until(lambda: greedy.poll() is not None, "all its processes are ended")
        names = [f"c{number}" for number in range(3)]
        begun, stopped = (
            {str(e["container"]): e["time"] for e in daemon.events(kind)} for kind in ("overused", "stopped")
        )
        assert list(begun) == list(stopped) == names
        first, *others = [float(str(stopped[name])) - float(str(begun[name])) for name in names]
        assert (first > 3.9, max(others) < first / 2) == (True, True), (first, others)


@needs_root
@pytest.mark.parametrize(
    ("admit", "overuse", "ends"), [("whole", "stop", True), ("whole", "warn", False), ("part", "stop", False)]
)
def test_who_takes_what_is_reserved_for_another_past_the_hook(
    tmp_path: Path, admit: str, overuse: str, ends: bool
) -> None:
    """It is within its limit; with the hook it would have waited."""
    escaped = f"tail -f /dev/null | {HOLD} --wait-for-stdin 7g & wait"
    options = ["--audit=50ms", f"--overuse={overuse}", "--overuse-after=300ms"]
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        honest = Process(daemon.container("h", memory="10g", admit=admit))
        honest.hello()
        assert honest.answer(honest.allocate(GIB)) == m.Accepted(GIB, 0)
        honest.hold(GIB)
        with running(daemon.container("a", memory="12g"), HOOKED, escaped, apart=True) as greedy:
            wait_until(lambda: share(daemon, "a")["usage"] > 8 * GIB, "it is charged")
            request = honest.allocate(8 * GIB)
            if ends:
                wait_until(lambda: greedy.poll() is not None, "all its processes are ended")
            else:
                wait_until(lambda: daemon.state("h")["state"] == "waiting", "h waits")
                begun = time.monotonic()
                wait_until(lambda: time.monotonic() - begun > 1.0, "it would have been ended by now")
                assert greedy.poll() is None
        assert isinstance(honest.answer(request), m.Accepted)
        told = daemon.log.read_text().count("took, past the hook, what others were granted or have reserved")
        reasons = [(event["container"], event["reason"]) for event in daemon.events("stopped")]
        assert (reasons, told, daemon.events("overused")) == ([("a", "taken")] * ends, (admit == "whole") + ends, [])


def test_a_peak_that_does_not_rise_is_learned_until_it_does(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=50ms", "--learn=200ms") as daemon:
        process = Process(daemon.container("a", memory="10g"))
        process.hello()
        assert process.answer(process.allocate(4 * GIB)) == m.Accepted(4 * GIB, 0)
        wait_until(lambda: share(daemon, "a")["learned"] == int(4 * GIB * 1.15), "it is learned")
        assert share(daemon, "a")["limit"] == 10 * GIB
        assert process.answer(process.allocate(3 * GIB)) == m.Accepted(3 * GIB, 0)
        wait_until(lambda: share(daemon, "a")["learned"] == int(7 * GIB * 1.15), "it is learned anew")


def test_a_container_that_writes_its_own_headroom_is_given_no_time_above_its_limit(tmp_path: Path) -> None:
    options = ["--audit=100ms", "--overuse=stop", "--overuse-after=1h"]
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        greedy, honest = (Process(daemon.container(name, memory="2g")) for name in ("a", "b"))
        for process in (greedy, honest):
            process.hello()
            process.hold(4 * GIB)
        wait_until(lambda: len(daemon.events("overused")) == 2, "both are noticed")
        assert daemon.events("stopped") == []
        greedy.give(8 * GIB)
        wait_until(lambda: bool(daemon.events("stopped")), "it is ended")
        wait_until(lambda: not is_alive(greedy.pid), "it is gone")
        assert is_alive(honest.pid)
        assert [event["container"] for event in daemon.events("stopped")] == ["a"]


def test_the_database_shows_who_holds_what(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="4g"))
    process.hello()
    process.ask(m.Allocate(0, 3 * GIB, "cuMemAlloc"))

    def holding() -> list[tuple[int, int]]:
        with closing(sqlite3.connect(daemon.directory / "state.db")) as database:
            return database.execute("SELECT granted, used FROM holdings").fetchall()

    wait_until(lambda: holding() == [(4 * GIB, 3 * GIB)], "it is written")
