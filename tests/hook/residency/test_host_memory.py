"""Host memory that is less than was asked for, and host memory after kills: real programs, hook, scheduler, porter."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built import build_porter
from daemon import Daemon, host_pool, running_daemon, wait_until
from hooked_program import Program

MIB = 1 << 20
SIZE = 66 * MIB
CARD = 4096 * MIB
POOL = 2048 * MIB
GIVEN = 1024 * MIB  # the porter takes host memory in parts of that size
IN_FLIGHT = 512 * MIB  # of it, which is promised to nobody
LARGE = 2048 * MIB  # two and their contexts are more than is promised then

Join = Callable[..., Program]


@pytest.fixture
def daemon(tmp_path: Path, hook: Path) -> Iterator[Daemon]:
    build_porter()
    options = ("--oversubscribe=2.0", f"--host-memory={POOL}", f"--libraries={hook}", "--audit=0")
    with running_daemon(tmp_path / "d", f"simulated:{CARD >> 20}MiB", *options) as running:
        yield running


@contextlib.contextmanager
def little_to_pin(daemon: Daemon) -> Iterator[None]:
    with (daemon.directory / "driver/devices").open("a") as settings:
        settings.write(f"pinned_mib={GIVEN >> 20}\n")
    yield


@contextlib.contextmanager
def little_to_have(daemon: Daemon) -> Iterator[None]:
    folder = host_pool(daemon.directory).parent
    folder.mkdir(mode=0o700, exist_ok=True)
    size = f"size={(GIVEN >> 20) + 300}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        daemon.stop()
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@pytest.mark.parametrize(
    ("little", "reason"),
    [
        (little_to_pin, "Cannot allocate memory"),
        pytest.param(little_to_have, "No space left on device", marks=needs_root),
    ],
)
def test_less_host_memory_is_promised_and_said_and_nothing_fails(daemon, join: Join, little, reason: str) -> None:
    def device() -> dict[str, int]:
        return daemon.admin.request("devices")["devices"][0]

    with little(daemon):
        first = join(daemon.container("first", memory="3g", suspend="auto"))
        second = join(daemon.container("second", memory="3g", suspend="auto"), CONVGPU_NOTICE="never")
        wait_until(lambda: device()["pool"] == GIVEN, "the host gives what it has", 60)
        wait_until(lambda: f"the host gives 1024 of 2048 MiB: {reason}" in daemon.log.read_text(), "it is said")
        assert device()["promised"] == device()["capacity"] + GIVEN - IN_FLIGHT
        assert first.call(f"alloc {LARGE}").code == 0
        second.begin(f"alloc {LARGE}")
        wait_until(lambda: bool(daemon.state("second")["waiting"]), "the other one waits for what is promised")
        assert first.end() == []
        assert second.result().code == 0
        assert daemon.events("rejected") == []


def held(daemon: Daemon, join: Join) -> tuple[Program, int]:
    """A program whose memory lies on the host."""
    program = join(daemon.container("a", memory="1g", suspend="auto"))
    address = program.call(f"alloc {SIZE}").number
    assert program.call(f"fill {address} {SIZE} 7").code == 0
    daemon.admin.request("suspend", name="a")
    wait_until(lambda: daemon.state("a")["devices"][0]["out"] == SIZE, "it is out")
    return program, address


def test_the_next_scheduler_gives_back_what_nobody_has_out_any_more(daemon, join: Join) -> None:
    program, _ = held(daemon, join)
    folder = host_pool(daemon.directory).parent
    daemon.kill()
    program.kill()
    assert (folder / "pool").stat().st_size > 0
    daemon.start()
    wait_until(lambda: not folder.exists(), "nothing is left on the host")
    assert daemon.admin.request("devices")["devices"][0]["out"] == 0


def test_a_process_that_has_not_reconnected_keeps_what_it_has_out(daemon, join: Join) -> None:
    program, address = held(daemon, join)
    daemon.kill()
    os.kill(program.pid, signal.SIGSTOP)
    try:
        daemon.start()
        assert daemon.stop() == 0  # it has not seen the process
        daemon.start()
    finally:
        os.kill(program.pid, signal.SIGCONT)
    wait_until(lambda: daemon.state("a")["devices"][0]["out"] == SIZE, "it is known again", 60)
    daemon.admin.request("resume", name="a")
    assert program.call(f"compare {address} {SIZE} 7").values == ("0",)
    assert program.end() == []
    assert daemon.stop() == 0
    assert not host_pool(daemon.directory).parent.exists()


def test_a_process_that_ends_before_it_reconnects_gives_the_host_its_memory_back(daemon, join: Join) -> None:
    program, _ = held(daemon, join)
    daemon.kill()
    os.kill(program.pid, signal.SIGSTOP)
    daemon.start()
    wait_until(lambda: daemon.log.read_text().count("the porter runs") == 2, "a porter watches over it", 60)
    program.kill()
    wait_until(lambda: host_pool(daemon.directory).stat().st_size == 0, "the host has its memory back")
    assert daemon.stop() == 0
    assert not host_pool(daemon.directory).parent.exists()
