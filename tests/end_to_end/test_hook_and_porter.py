"""Hook and porter together, on the simulated driver: memory leaves and comes back, and a program notices only the time.

The scheduler is one that decides nothing (tests/gpu/moving/conductor.py), which works on a card, too.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from built import build_driver, build_hook, build_porter
from conductor import ROOT, Conductor, Member
from gpu_host import GIB, MIB, GpuHost

SOURCES = ROOT / "benchmarks/gpu/src"
BLOCK, COUNT = 96 * MIB, 3  # a block is a piece and a half
HELD = COUNT * BLOCK
SIZE = 4 * GIB


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GpuHost]:
    build_driver()
    folder = tmp_path / "driver"
    folder.mkdir()
    with GpuHost(folder, [SIZE]) as host:
        yield host


@pytest.fixture
def conductor(host: GpuHost, tmp_path: Path) -> Iterator[Conductor]:
    build_hook()
    build_porter()
    conductor = Conductor(tmp_path, host.uuids[0], SIZE, host.directory, GIB)
    yield conductor
    conductor.close()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "residency"
    source = SOURCES / "residency.c"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", path, source, "-ldl"], check=True)
    return path


def holder(conductor: Conductor, program: Path, name: str, seed: int) -> Member:
    """Start a program that has filled its blocks, and wait for the porter's pool."""
    member = conductor.start(name, program, SOURCES / "residency_kernels.ptx")
    assert member.answer() == "0"
    conductor.wait_for_pool()
    assert member.say(f"alloc {COUNT} {BLOCK}").isdigit()
    assert member.say(f"fill {seed}") == "0"
    return member


def test_what_left_is_free_for_others_and_comes_back_unchanged(
    conductor: Conductor, program: Path, host: GpuHost
) -> None:
    member, observer = holder(conductor, program, "a", 3), host.process()
    observer.start()
    before = observer.free_memory()
    for _ in range(2):
        member.suspend(HELD)
        assert observer.free_memory() == before + HELD
        member.resume()
        assert observer.free_memory() == before
        assert member.say("check 3") == "0"
    assert member.end() == 0


def test_two_programs_change_places(conductor: Conductor, program: Path) -> None:
    members = [holder(conductor, program, name, seed) for seed, name in enumerate("ab")]
    members[1].suspend(HELD)
    for _ in range(2):
        members[0].suspend(HELD)
        members[1].resume()
        members.reverse()
    members[1].resume()
    assert [member.say(f"check {seed}") for seed, member in enumerate(members)] == ["0", "0"]


def test_a_part_may_leave_and_a_submission_waits_for_it(conductor: Conductor, program: Path) -> None:
    member = holder(conductor, program, "a", 5)
    member.suspend(BLOCK // 2)
    assert BLOCK // 2 <= member.out < HELD
    member.ask("check 5")
    member.resume()
    assert member.answer() == "0"


def test_all_that_can_move_leaves(conductor: Conductor, program: Path) -> None:
    member = holder(conductor, program, "a", 7)
    assert member.suspend_all(HELD) == HELD
    member.resume()
    assert member.say("check 7") == "0"
