"""A granted allocation that the driver refuses because a program outside ConvGPU has the memory: it waits."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, Daemon, Process, running_daemon, wait_until
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program

from convgpu.protocol import messages as m
from convgpu.protocol.wire import Reason

Join = Callable[..., Program]
Outside = Callable[[str], Program]
MIB = 1 << 20
SIZE = 8 * GIB
CALLS = {
    f"alloc {SIZE}": ("cuMemAlloc", SIZE),
    f"managed {SIZE} 1": ("cuMemAllocManaged", SIZE),
    f"create {SIZE} 1 0": ("cuMemCreate", SIZE),
    f"async {SIZE} 0": ("cuMemAllocAsync", SIZE),
    "stack 32768": ("cuCtxSetLimit", (32768 - 1024) * 132 * 2048),
}


@pytest.fixture
def daemon(tmp_path: Path, hook: Path, simulated_driver: Path) -> Iterator[Daemon]:
    """Its audit sees nothing before the driver refuses, and soon enough that memory has come back."""
    assert simulated_driver == DRIVER
    with running_daemon(tmp_path / "d", "simulated:16GiB", f"--libraries={hook}", "--audit=1s") as running:
        yield running


@pytest.fixture
def outside(join: Join, daemon: Daemon) -> Outside:
    """Start a program of no container that takes memory of the device by a command."""
    return lambda command: take_outside(join, daemon, command)


def take_outside(join: Join, daemon: Daemon, command: str) -> Program:
    program = join(daemon.directory, LD_PRELOAD="")
    assert program.call(command).code == SUCCESS
    return program


def enter(program: Program, thread: int = 0) -> None:
    assert program.call("init 0", thread).code == SUCCESS
    assert program.call(f"use {program.call('retain 0', thread).number}", thread).code == SUCCESS


def device(daemon: Daemon) -> dict[str, int]:
    return daemon.admin.request("devices")["devices"][0]


def see_waiting(daemon: Daemon, name: str) -> dict[str, object]:
    wait_until(lambda: daemon.state(name)["state"] == "waiting", f"{name} waits")
    [waiting] = daemon.state(name)["waiting"]
    return waiting


def kinds(daemon: Daemon, name: str) -> list[object]:
    events = daemon.events("paused", "granted", "rejected")
    return [event["kind"] for event in events if event["container"] == name]


# The driver refuses no managed memory for want of room on the device: its pages may lie on the host.
@pytest.mark.parametrize("command", [command for command in CALLS if not command.startswith("managed ")])
def test_a_call_waits_for_memory_that_was_taken_just_now(
    daemon: Daemon, join: Join, outside: Outside, command: str
) -> None:
    program, other = (join(daemon.container(name, memory=limit)) for name, limit in (("a", "12g"), ("b", "2g")))
    enter(program, 1)
    foreigner = outside(f"alloc {10 * GIB}")
    program.begin(command)
    waiting = see_waiting(daemon, "a")
    assert (waiting["call"], waiting["size"], waiting["reason"]) == (*CALLS[command], "memory")
    assert device(daemon)["external"] > 10 * GIB
    for one, thread in ((program, 1), (other, 0)):  # what has room goes on
        assert one.call(f"alloc {GIB}", thread).code == SUCCESS
    foreigner.kill()
    assert program.result().code == SUCCESS
    assert kinds(daemon, "a") == ["paused", "granted"]
    assert kinds(daemon, "b") == []


def test_it_waits_the_same_for_memory_that_is_known(daemon: Daemon, join: Join, outside: Outside) -> None:
    program = join(daemon.container("a", memory="12g"))
    foreigner = outside(f"alloc {10 * GIB}")
    wait_until(lambda: device(daemon)["external"] > 10 * GIB, "the audit sees it")
    program.begin(f"alloc {SIZE}")
    assert see_waiting(daemon, "a")["reason"] == "memory"
    foreigner.kill()
    assert program.result().code == SUCCESS


def test_a_context_waits_too(daemon: Daemon, start: Callable[..., Program], outside: Outside) -> None:
    folder = daemon.container("a", memory="12g")
    foreigner = outside(f"alloc {15 * GIB + GIB // 4}")
    program = start(
        LD_PRELOAD=str(folder / "libconvgpu.so"),
        LD_LIBRARY_PATH=str(folder / "driver"),
        CONVGPU_SOCKET="",
        SIMULATED_GPU_DIRECTORY="",
    )
    assert program.call("init 0").code == SUCCESS
    program.begin("retain 0")
    assert see_waiting(daemon, "a")["call"] == "cuDevicePrimaryCtxRetain"
    foreigner.kill()
    assert program.result().code == SUCCESS


def test_memory_that_the_driver_names_nobody_for_is_waited_for(daemon: Daemon, join: Join, outside: Outside) -> None:
    program = join(daemon.container("a", memory="12g"))
    foreigner = outside(f"managed {10 * GIB} 1")
    program.begin(f"alloc {SIZE}")
    see_waiting(daemon, "a")
    foreigner.kill()
    assert program.result().code == SUCCESS


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_memory_of_a_program_that_escapes_the_hook_is_waited_for(daemon: Daemon, join: Join, tmp_path: Path) -> None:
    program = join(daemon.container("a", memory="14g"))
    folder = daemon.container("b", memory="2g")
    hold = f"tail -f /dev/null | {{}} {DRIVER}/gpu-hold --wait-for-stdin"
    script = f"{hold.format(f'LD_PRELOAD={folder}/libconvgpu.so')} 1g & {hold.format('')} 5g & wait"
    command = ["unshare", "--pid", "--fork", "--kill-child", "bash", "-c", script]
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder / "driver")}
    told = tmp_path / "told"
    with told.open("w") as file, subprocess.Popen(command, env=environment, stdout=file) as container:
        try:
            wait_until(lambda: told.read_text().count(" hold ") == 2, "both hold memory")
            program.begin(f"alloc {12 * GIB}")
            assert see_waiting(daemon, "a")["behind"] == ["b"]
        finally:
            container.kill()
    assert program.result().code == SUCCESS


def test_the_option_wait_ends_it(daemon: Daemon, join: Join, outside: Outside) -> None:
    program = join(daemon.container("a", memory="12g", wait="1s"))
    outside(f"alloc {10 * GIB}")
    assert program.call(f"alloc {SIZE}").code == OUT_OF_MEMORY
    assert kinds(daemon, "a") == ["paused", "rejected"]
    assert daemon.events("rejected")[0]["reason"] == "deadline"
    assert program.call(f"alloc {GIB}").code == SUCCESS
    [said] = program.end()
    assert "the time to wait (option `wait`) is over" in said


def test_it_ends_with_its_process_and_outlives_the_scheduler(daemon: Daemon, join: Join, outside: Outside) -> None:
    killed, patient = (join(daemon.container(name, memory="12g")) for name in "ab")
    foreigner = outside(f"alloc {10 * GIB}")
    for name, program in (("a", killed), ("b", patient)):
        program.begin(f"alloc {SIZE}")
        see_waiting(daemon, name)
    killed.kill()
    wait_until(lambda: daemon.state("a")["waiting"] == [], "nobody waits any more")
    daemon.kill()
    daemon.start()
    see_waiting(daemon, "b")
    foreigner.kill()
    assert patient.result().code == SUCCESS


def test_what_an_ended_program_leaves_fails_nobody(tmp_path: Path, hook: Path, join: Join) -> None:
    """The driver needs a second for the 10 GiB, and for that time they are nobody's."""
    slow = "--simulated-settle=100000"
    with running_daemon(tmp_path / "d", "simulated:16GiB", f"--libraries={hook}", "--audit=1s", slow) as daemon:
        program = join(daemon.container("a", memory="12g"))
        take_outside(join, daemon, f"alloc {10 * GIB}").kill()
        assert program.call(f"alloc {SIZE}").code == SUCCESS
        assert "rejected" not in kinds(daemon, "a")


def test_a_refusal_of_the_drivers_own_is_the_programs_error(daemon: Daemon, join: Join) -> None:
    """Addresses below 4 GiB run out, with 12 GiB of the device unused."""
    program = join(daemon.container("a", memory="12g"))
    assert program.call(f"alloc1 {3 * GIB}").code == SUCCESS
    assert program.call(f"alloc1 {3 * GIB}").code == OUT_OF_MEMORY
    assert kinds(daemon, "a") == []
    assert program.call(f"alloc {SIZE}").code == SUCCESS


def test_what_there_is_room_for_by_now_is_granted_again(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="12g"))
    process.hello()
    assert process.ask(m.Allocate(0, GIB, "cuMemAlloc", flags=1)) == m.Accepted(GIB, 0)
    assert process.ask(m.Allocate(7, GIB, "cuMemAlloc", flags=1)) == m.Rejected(Reason.DEVICE, 0, 0)


def test_without_the_audit_the_drivers_word_counts(tmp_path: Path, hook: Path, join: Join) -> None:
    """Nobody would see that the memory has come back."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", f"--libraries={hook}", "--audit=0") as daemon:
        program = join(daemon.container("a", memory="12g"))
        take_outside(join, daemon, f"alloc {10 * GIB}")
        assert program.call(f"alloc {SIZE}").code == OUT_OF_MEMORY
        assert daemon.events("rejected")[0]["reason"] == "driver"
        [said] = program.end()
        assert "the driver refuses it" in said


def test_a_book_with_more_room_than_the_driver_keeps_nobody_waiting(
    daemon: Daemon, join: Join, outside: Outside
) -> None:
    """Each process takes a little that is tolerated and in no book: the program's error, as without memory outside."""
    with (daemon.directory / "driver/devices").open("a") as devices:
        devices.write(f"process_size={12 << 20}\n")
    program = join(daemon.container("a", memory="16g"))
    outside(f"alloc {10 * GIB}")
    wait_until(lambda: device(daemon)["external"] > 10 * GIB, "the audit sees it")
    share = daemon.state("a")["devices"][0]
    room = device(daemon)["capacity"] - share["usage"]
    assert program.call(f"alloc {room // (2 * MIB) * 2 * MIB}").code == OUT_OF_MEMORY
    assert kinds(daemon, "a") == ["rejected"]
    assert daemon.events("rejected")[0]["reason"] == "driver"
