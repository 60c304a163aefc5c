"""`convgpu wait` on a real scheduler: ends when memory is granted, refused, or the time is over."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.cli.show import wait
from convgpu.protocol.records import Event, Events

CONVGPU = Path(sys.executable).parent / "convgpu"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d", "simulated:8GiB") as daemon:
        yield daemon


def begin(daemon: Daemon, *words: str) -> "subprocess.Popen[str]":
    command = [CONVGPU, "wait", f"--directory={daemon.directory}", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pause(daemon: Daemon, **options: str) -> Process:
    """Let container `b` wait for what `a` holds; return the process of `a`."""
    holder = Process(daemon.container("a", memory="8g"))
    holder.hello()
    holder.answer(holder.allocate(7 * GIB))
    waiter = Process(daemon.container("b", memory="8g", **options))
    waiter.hello()
    waiter.allocate(7 * GIB)
    wait_until(lambda: daemon.state("b")["state"] == "waiting", "b waits")
    return holder


def test_who_waits_for_nothing_is_ready(daemon: Daemon) -> None:
    daemon.container("a", memory="2g")
    with begin(daemon, "a") as process:
        assert (process.communicate(timeout=120), process.returncode) == (("", ""), 0)


def test_the_time_can_be_over(daemon: Daemon) -> None:
    pause(daemon)
    with begin(daemon, "b", "--timeout=100ms") as process:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (1, "b: still waiting. See: convgpu ps\n")


def test_granted_memory_ends_it(daemon: Daemon) -> None:
    holder = pause(daemon)
    with begin(daemon, "b", "--timeout=1m") as process:
        holder.end()
        assert (process.communicate(timeout=120), process.returncode) == (("", ""), 0)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event(7, 1.0, "rejected", "v", reason="deadline"), "b: rejected: deadline. See: convgpu history b"),
        (Event(7, 1.0, "ended", "v"), "b: ended. See: convgpu history b"),
        (Event(7, 1.0, "rejected", "other"), ""),
    ],
)
def test_a_refusal_is_no_success(event: Event, said: str) -> None:
    asked: list[int] = []

    def events(since: int) -> Events:
        asked.append(since)
        return Events((event,) if since == 7 else (), 7 if since > 7 else 8)

    scheduler = SimpleNamespace(events=events, containers=lambda: ())
    assert wait._wait(scheduler, {"v": "b"}, None) == said  # type: ignore[arg-type]
    assert asked == [1 << 62, 7]
