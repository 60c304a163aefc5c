"""A scheduler that cannot start says why to whoever asks, where a supervisor wants that; else it ends at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import JsonAdmin

from convgpu.client.scheduler import SchedulerRefused

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES, SIMULATED = ROOT / "hook/build", ROOT / "tests/fakes/build"


def start(directory: Path, *words: str, **variables: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "CONVGPU_DIRECTORY": str(directory), **variables}
    command = [sys.executable, "-m", "convgpu.daemon", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def answer(directory: Path) -> str:
    with pytest.raises(SchedulerRefused) as refused:
        JsonAdmin(str(directory / "admin.sock"), timeout=120).request("containers")
    assert refused.value.code == "failed"
    return refused.value.text


@pytest.mark.parametrize(
    ("words", "variables", "reason"),
    [
        ((), {"CONVGPU_DEVICES": "simulated:much"}, "'much' is not a size"),
        ((), {"CONVGPU_RESERVE": "lots"}, "Invalid value for '--reserve': 'lots' is not a size"),
        (("--refuse=CONVGPU_KEEP: no",), {}, "CONVGPU_KEEP: no"),
        (  # found when the directory is locked already
            (f"--libraries={LIBRARIES}", f"--simulated-driver={SIMULATED}"),
            {"CONVGPU_DEVICES": "simulated:1024GiB", "CONVGPU_OVERSUBSCRIBE": "16"},
            "the largest threshold that fits is 1",
        ),
    ],
)
def test_the_reason_is_the_answer_to_everything(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], reason: str
) -> None:
    with start(tmp_path, *words, **variables, CONVGPU_EXPLAIN_FAILURE="1") as process:
        try:
            said = answer(tmp_path)
            assert said.startswith("the scheduler cannot start: ")
            assert reason in said
        finally:
            process.terminate()
    assert process.returncode != 0  # so that whoever supervises it starts it again


def test_without_a_supervisor_it_ends_with_one_line(tmp_path: Path) -> None:
    with start(tmp_path, CONVGPU_DEVICES="simulated:much") as process:
        assert process.stdout is not None
        [line] = process.stdout.read().splitlines()
    assert (process.returncode, "'much' is not a size" in line) == (1, True)


def test_it_leaves_a_directory_in_which_another_works_alone(tmp_path: Path) -> None:
    with start(tmp_path, "--refuse=the first") as first:
        try:
            assert answer(tmp_path) == "the scheduler cannot start: the first"
            with start(tmp_path, "--refuse=the second", CONVGPU_EXPLAIN_FAILURE="1") as second:
                assert second.stdout is not None
                assert "another convgpud is at work" in second.stdout.read()
            assert answer(tmp_path) == "the scheduler cannot start: the first"
        finally:
            first.terminate()
