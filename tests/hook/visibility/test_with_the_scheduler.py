"""From `gpus=any` to what a program sees: a real scheduler chooses, and CUDA and NVML agree."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, running_daemon

from .conftest import PROGRAM

SEES = """
print(json.dumps({"before": nvml(), "cuda": by_cuda(), "after": nvml()}), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def daemon(tmp_path: Path, simulated_driver: Path, hook: Path) -> Iterator[Daemon]:
    assert simulated_driver.exists()
    with running_daemon(tmp_path / "d", "simulated:8GiB,8GiB,8GiB", f"--libraries={hook}") as running:
        yield running


class Running:
    """A program in a container's place that has started CUDA, and lives until the test is over."""

    def __init__(self, folder: Path, visible: str | None = None, program: str = SEES) -> None:
        settings = {
            "PATH": os.environ["PATH"],
            "LD_PRELOAD": str(folder / "libconvgpu.so"),
            "LD_LIBRARY_PATH": str(folder / "driver"),
        } | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        command, pipe = [sys.executable, "-c", PROGRAM + program], subprocess.PIPE
        self._process = subprocess.Popen(command, env=settings, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        self.sees = json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate("\n", timeout=120)
        assert self._process.returncode == 0


@pytest.fixture
def uuids(daemon: Daemon) -> list[str]:
    return [str(device["uuid"]) for device in daemon.admin.request("devices")["devices"]]


def chosen(daemon: Daemon, name: str) -> list[str]:
    return [str(device["uuid"]) for device in daemon.state(name)["devices"]]


@pytest.mark.parametrize(("gpus", "count"), [("any", 1), ("any:2", 2)])
def test_a_program_sees_what_was_chosen(daemon: Daemon, uuids: list[str], gpus: str, count: int) -> None:
    program = Running(daemon.container("a", memory="4g", gpus=gpus))
    assert program.sees["before"] == program.sees["cuda"] == program.sees["after"] == chosen(daemon, "a")
    assert len(program.sees["cuda"]) == count
    assert set(program.sees["cuda"]) <= set(uuids)
    program.end()


def test_two_containers_do_not_collide_while_a_device_is_idle(daemon: Daemon, uuids: list[str]) -> None:
    programs = [Running(daemon.container(name, memory="6g", gpus="any")) for name in "abc"]
    assert sorted(program.sees["cuda"][0] for program in programs) == sorted(uuids)
    for program in programs:
        program.end()


def test_processes_of_one_container_share_its_devices(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="4g", gpus="any:2")
    whole = Running(folder)
    ranks = [Running(folder, visible=str(rank)) for rank in range(2)]
    assert [rank.sees["cuda"] for rank in ranks] == [[uuid] for uuid in whole.sees["cuda"]]
    for program in (whole, *ranks):
        program.end()


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"memory": "4g", "gpus": "1"}, [1]),
        ({"memory": "4g", "gpus": "2,0"}, [0, 2]),
        ({"memory": "{2}:2g,{1}:4g"}, [1, 2]),
        ({"memory": "4g", "gpus": "all"}, [0, 1, 2]),
        ({"memory": "4g", "gpus": "0,1,2"}, [0, 1, 2]),
    ],
)
def test_a_program_sees_what_its_user_named(
    daemon: Daemon, uuids: list[str], options: dict[str, str], numbers: list[int]
) -> None:
    terms = {name: value.format(*uuids) for name, value in options.items()}
    program = Running(daemon.container("a", **terms))
    seen = [uuids[number] for number in numbers]
    assert program.sees == {"before": seen, "cuda": seen, "after": seen}
    program.end()


def test_a_number_of_the_programs_is_one_of_the_named_gpus(daemon: Daemon, uuids: list[str]) -> None:
    program = Running(daemon.container("a", memory="4g", gpus="1,2"), visible="1")
    assert program.sees["cuda"] == [uuids[2]]
    program.end()
