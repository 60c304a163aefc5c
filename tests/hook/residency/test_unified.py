"""One container with more memory than its device has (`backing=unified`): real program, hook and scheduler."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon import CONTEXT, Daemon, running_daemon, wait_until
from gpu_host import CudaProcess
from hooked_program import Program

from convgpu.client.admin import SchedulerRefused

MIB = 1 << 20
GIB = 1 << 30
CARD = 4 * GIB
LIMIT = 5 * GIB
BLOCK = 3 * GIB
MARGIN = 128 * MIB  # of the device, which the hook leaves free
ENDS = 65536

Start = Join = Callable[..., Program]


@pytest.fixture
def daemon(tmp_path: Path, hook: Path) -> Iterator[Daemon]:
    # Without an audit: it would take the context of a test's observer for external memory.
    options = ("--host-memory=2g", f"--libraries={hook}", f"--record={tmp_path}/rec", "--audit=0s")
    with running_daemon(tmp_path / "d", "simulated:4GiB", *options) as running:
        yield running


@pytest.fixture
def waiting(start: Start, daemon: Daemon) -> Join:
    """Start a program in a container whose context waits for its device."""

    def begin(name: str, **options: str) -> Program:
        folder = daemon.container(name, **options)
        settings = {"LD_PRELOAD": str(folder / "libconvgpu.so"), "LD_LIBRARY_PATH": str(folder / "driver")}
        program = start("dlsym", **settings, CONVGPU_SOCKET="", SIMULATED_GPU_DIRECTORY="", CONVGPU_NOTICE="never")
        assert program.call("init 0").code == 0
        program.begin("retain 0")
        wait_until(lambda: bool(daemon.state(name)["waiting"]), f"{name} waits for the device")
        return program

    return begin


def use(program: Program) -> None:
    """Go on with the context that was waited for."""
    assert program.call(f"use {program.result().number}").code == 0


def allocate(program: Program, size: int) -> int:
    made = program.call(f"alloc {size}")
    assert made.code == 0, made
    return made.number


def device_holds(daemon: Daemon) -> tuple[int, int, int]:
    """Return what the device's memory is used for, in bytes; an audit that began before an end may count it once."""
    [device] = daemon.admin.request("devices")["devices"]
    return device["used"], device["settling"], device["external"]


def test_a_container_has_more_than_its_device_and_has_that_alone(daemon, join: Join, waiting: Join) -> None:
    program = join(daemon.container("large", memory="5g", backing="unified"))
    first, second = allocate(program, BLOCK), allocate(program, GIB)
    for address, size, value in ((first, BLOCK, 1), (second, GIB, 2)):
        assert program.call(f"fill {address} {ENDS} {value}").code == 0
        assert program.call(f"fill {address + size - ENDS} {ENDS} {value}").code == 0
        assert program.call(f"compare {address} {ENDS} {value}").values == ("0",)
        assert program.call(f"compare {address + size - ENDS} {ENDS} {value}").values == ("0",)
    left, total = map(int, program.call("info").values)
    usage = daemon.state("large")["devices"][0]["usage"]
    assert (total, left) == (LIMIT, LIMIT - usage)
    assert usage > CARD
    assert program.call(f"alloc {GIB}").code == 2  # beyond the limit, like anybody

    other = waiting("other", memory="1g")
    [refusal] = program.end()
    assert "it would exceed the limit (limit 5GiB, in use 4.51GiB)" in refusal
    use(other)
    assert allocate(other, MIB)
    assert other.end() == []


def test_it_waits_until_it_has_the_device_alone_and_others_after_it(daemon, join: Join, waiting: Join) -> None:
    small = join(daemon.container("small", memory="1g"))
    address = allocate(small, 2 * MIB)
    large = waiting("large", memory="5g", backing="unified")
    assert small.call(f"free {address}").code == 0
    assert small.end() == []
    use(large)
    assert allocate(large, BLOCK)
    assert daemon.state("large")["devices"][0]["grant"] == LIMIT
    daemon.kill()
    daemon.start()
    wait_until(lambda: daemon.state("large")["devices"][0]["usage"] > BLOCK, "the new scheduler knows it")
    assert allocate(large, GIB)
    assert large.end() == []
    wait_until(lambda: device_holds(daemon) == (0, 0, 0), "the device holds nothing")


def test_a_free_makes_room_on_the_device_for_what_began_on_the_host(daemon, join: Join) -> None:
    observer = CudaProcess(daemon.directory / "driver", {}, [])
    observer.start()
    program = join(daemon.container("large", memory="5g", backing="unified"))
    first, _ = allocate(program, BLOCK), allocate(program, GIB)
    assert observer.free_memory() < MARGIN + 2 * MIB
    assert program.call(f"free {first}").code == 0
    assert observer.free_memory() == CARD - 2 * CONTEXT - GIB
    observer.kill()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backing": "swap"}, "backing=swap: there are vmm, unified"),
        ({"backing": "unified", "memory": "7g"}, "the largest limit that fits is memory=6144m"),
        ({"backing": "unified", "suspend": "auto"}, "leave out suspend, or backing"),
        ({"backing": "unified", "gang": "g:2"}, "leave out gang, or backing"),
        ({"backing": "unified", "fixed": "1g"}, "leave out fixed"),
        ({"backing": "unified", "admit": "part"}, "leave out admit"),
    ],
)
def test_options_that_make_no_sense_are_refused(daemon, options, text) -> None:
    with pytest.raises(SchedulerRefused) as refused:
        daemon.container("a", **{"memory": "5g", **options})
    assert text in str(refused.value)


def test_without_the_option_no_limit_is_more_than_the_device(daemon) -> None:
    with pytest.raises(SchedulerRefused, match="the largest limit that fits is memory=4096m"):
        daemon.container("a", memory="5g")


def test_a_host_with_several_devices_needs_one_by_name(tmp_path, hook) -> None:
    with running_daemon(tmp_path / "d", "simulated:4GiB,4GiB", "--host-memory=2g", f"--libraries={hook}") as daemon:
        for gpus in ("any", "all"):
            with pytest.raises(SchedulerRefused, match="name it, as in gpus=0"):
                daemon.container("a", memory="4g", backing="unified", gpus=gpus)
        daemon.container("b", memory="4500m", backing="unified", gpus="1")
