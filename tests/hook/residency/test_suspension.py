"""A container is suspended and resumed: real program, hook, scheduler and porter."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built import build_porter
from daemon import Daemon, host_pool, running_daemon, wait_until
from gpu_host import CudaProcess
from hooked_program import Program

from convgpu.client.admin import SchedulerRefused

MIB = 1 << 20
GIB = 1 << 30
PIECE = 64 * MIB
SIZE = 5 * PIECE + 6 * MIB

Join = Callable[..., Program]


@pytest.fixture
def daemon(tmp_path: Path, hook: Path) -> Iterator[Daemon]:
    """A scheduler with one device of 4 GiB and 512 MiB of the host's memory."""
    build_porter()
    options = ("--host-memory=512m", f"--libraries={hook}", "--audit=0")
    with running_daemon(tmp_path / "d", "simulated:4GiB", *options) as running:
        yield running


def filled(program: Program, size: int, value: int) -> int:
    made = program.call(f"alloc {size}")
    assert made.code == 0
    assert program.call(f"fill {made.number} {size} {value}").code == 0
    return made.number


def wrong_bytes(program: Program, address: int, size: int, value: int) -> int:
    """Compare at the borders of pieces, of 64 KiB each."""
    places = {0, size - 65536, *(border - 32768 for border in range(PIECE, size, PIECE))}
    return sum(program.call(f"compare {address + place} 65536 {value}").number for place in places)


def out_of(daemon: Daemon, name: str) -> int:
    return sum(device["out"] for device in daemon.state(name)["devices"])


def suspend(daemon: Daemon, name: str, size: int) -> None:
    daemon.admin.request("suspend", name=name)
    wait_until(lambda: out_of(daemon, name) == size, f"{size} bytes of {name} are out")


def resume(daemon: Daemon, name: str) -> None:
    daemon.admin.request("resume", name=name)
    wait_until(lambda: daemon.state(name)["residency"] == "running", f"{name} runs again")


def moves(daemon: Daemon, name: str) -> list[str]:
    events = daemon.events("suspended", "evicted", "restored", "resumed")
    return [str(event["kind"]) for event in events if event["container"] == name]


def test_memory_leaves_and_comes_back_at_the_same_address(daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    address = filled(program, SIZE, 7)
    assert daemon.state("a")["residency"] == "running"
    suspend(daemon, "a", SIZE)
    assert (daemon.state("a")["residency"], daemon.state("a")["suspended"]) == ("stopped", True)
    program.begin(f"compare {address} 65536 7")  # stands at the gate
    resume(daemon, "a")
    assert program.result().values == ("0",)
    assert wrong_bytes(program, address, SIZE, 7) == 0
    assert out_of(daemon, "a") == 0
    assert list(dict.fromkeys(moves(daemon, "a"))) == ["suspended", "evicted", "restored", "resumed"]


def test_another_container_uses_the_room(daemon, join: Join) -> None:
    first = join(daemon.container("a", memory="2g", suspend="auto"))
    address = filled(first, SIZE, 1)
    suspend(daemon, "a", SIZE)
    second = join(daemon.container("b", memory="3g"))
    assert second.call(f"alloc {2 * GIB}").code == 0  # more than what the first one left
    second.end()
    resume(daemon, "a")
    assert wrong_bytes(first, address, SIZE, 1) == 0


def test_what_is_freed_while_it_is_out_leaves_the_host(daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    stays, goes = filled(program, PIECE, 3), filled(program, 2 * PIECE, 4)
    suspend(daemon, "a", 3 * PIECE)
    assert program.call(f"free {goes}").code == 0
    wait_until(lambda: out_of(daemon, "a") == PIECE, "what was freed is forgotten")
    resume(daemon, "a")
    assert wrong_bytes(program, stays, PIECE, 3) == 0


def test_the_end_of_a_suspended_program_gives_host_and_device_back(daemon, join: Join, tmp_path) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    filled(program, SIZE, 5)
    suspend(daemon, "a", SIZE)
    program.kill()
    wait_until(lambda: not daemon.state("a")["sessions"], "the program has ended")
    assert out_of(daemon, "a") == 0
    wait_until(lambda: host_pool(tmp_path / "d").stat().st_size == 0, "the host's memory is given back")


def test_rigid_containers_and_unknown_ones_are_not_suspended(daemon) -> None:
    daemon.container("rigid", memory="1g")
    with pytest.raises(SchedulerRefused, match="create its volume with the option suspend=auto"):
        daemon.admin.request("suspend", name="rigid")
    with pytest.raises(SchedulerRefused, match="no volume nobody"):
        daemon.admin.request("resume", name="nobody")


@pytest.mark.parametrize("options", [{"suspend": "maybe"}, {"fixed": "1g"}, {"suspend": "auto", "fixed": "2g"}])
def test_options_that_make_no_sense_are_refused(daemon, options) -> None:
    with pytest.raises(SchedulerRefused, match=r"suspend=maybe: there are no, auto|add suspend=auto|fixed=1024m"):
        daemon.container("a", memory="1g", **options)


def test_a_suspension_outlives_the_scheduler(daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    address = filled(program, SIZE, 6)
    suspend(daemon, "a", SIZE)
    usage = daemon.state("a")["devices"][0]["usage"]
    daemon.kill()
    daemon.start()
    wait_until(lambda: out_of(daemon, "a") == SIZE, "the new scheduler knows what is out")
    resume(daemon, "a")
    assert daemon.state("a")["devices"][0]["usage"] == usage
    assert wrong_bytes(program, address, SIZE, 6) == 0


def free_memory(directory: Path) -> int:
    """Bytes that the driver says are free, seen from a process of its own with a context."""
    process = CudaProcess(directory, {}, [])
    process.start()
    free = process.free_memory()
    process.kill()
    return free


def test_a_deep_suspension_takes_the_contexts_too(daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    address, small = filled(program, SIZE, 5), filled(program, 4096, 6)
    wait_until(lambda: daemon.admin.request("devices")["devices"][0]["pool"] > 0, "the porter has its context")
    before, usage = free_memory(daemon.directory / "driver"), daemon.state("a")["devices"][0]["usage"]
    daemon.admin.request("suspend", name="a", deep=True)
    wait_until(lambda: out_of(daemon, "a") == usage, "everything of it is out")
    assert (daemon.state("a")["residency"], daemon.state("a")["deep"]) == ("stopped", True)
    wait_until(lambda: free_memory(daemon.directory / "driver") == before + usage, "the device has all of it back")
    program.begin(f"compare {address} 65536 5")
    resume(daemon, "a")
    assert program.result().values == ("0",)
    assert wrong_bytes(program, address, SIZE, 5) == 0
    assert program.call(f"compare {small} 4096 6").values == ("0",)
    wait_until(lambda: free_memory(daemon.directory / "driver") == before, "the device holds it again")


def test_a_deep_suspension_outlives_scheduler_and_porter(daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    address, usage = filled(program, SIZE, 5), daemon.state("a")["devices"][0]["usage"]
    daemon.admin.request("suspend", name="a", deep=True)
    wait_until(lambda: out_of(daemon, "a") == usage, "everything of it is out")
    daemon.kill()
    daemon.start()
    wait_until(lambda: out_of(daemon, "a") == usage, "the new scheduler knows it")
    resume(daemon, "a")
    assert wrong_bytes(program, address, SIZE, 5) == 0


def test_a_deep_suspension_comes_back_when_an_outsider_has_left_the_card(daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    address, usage = filled(program, SIZE, 5), daemon.state("a")["devices"][0]["usage"]
    daemon.admin.request("suspend", name="a", deep=True)
    wait_until(lambda: out_of(daemon, "a") == usage, "everything of it is out")
    outsider = CudaProcess(daemon.directory / "driver", {}, [])
    outsider.start()
    outsider.allocate(outsider.free_memory() - usage // 2)
    daemon.admin.request("resume", name="a")
    wait_until(lambda: daemon.state("a")["residency"] == "restoring", "it waits for the card")
    outsider.kill()
    wait_until(lambda: daemon.state("a")["residency"] == "running", "it is back")
    assert wrong_bytes(program, address, SIZE, 5) == 0


def convgpu(daemon: Daemon, *words: str) -> str:
    command = [sys.executable, "-m", "convgpu.cli", words[0], "--directory", str(daemon.directory), *words[1:]]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_the_command_line_suspends_shows_and_resumes(daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="3g", suspend="auto"))
    address = filled(program, SIZE, 8)
    suspended = json.loads(convgpu(daemon, "suspend", "a", "--json"))
    assert (suspended["state"], suspended["suspended"], suspended["gpus"][0]["out"]) == ("stopped", True, SIZE)
    assert "suspended: 326MiB on the host" in convgpu(daemon, "ps")
    assert convgpu(daemon, "resume", "a").startswith("a: runs with")
    deep = json.loads(convgpu(daemon, "suspend", "a", "--deep", "--json"))
    assert deep["gpus"][0]["out"] == deep["gpus"][0]["usage"]
    assert convgpu(daemon, "resume", "a").startswith("a: runs with")
    assert json.loads(convgpu(daemon, "ps", "--json"))[0]["residency"] == "running"
    assert wrong_bytes(program, address, SIZE, 8) == 0
