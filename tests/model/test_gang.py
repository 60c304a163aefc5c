"""docs/model/gang.pml under spin: gangs end, and do not without one of the precautions."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.spin

MODEL = Path(__file__).parents[2] / "docs/model/gang.pml"


def check(folder: Path, *flags: str) -> str:
    """Run the verifier, which looks for violated assertions and for processes that wait for ever."""
    for command in (
        ["spin", "-a", *flags, str(MODEL)],
        ["gcc", "-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c"],
        ["./pan", "-m100000"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_gangs_that_are_admitted_as_a_whole_end(tmp_path: Path) -> None:
    said = check(tmp_path)
    assert "errors: 0" in said, said
    assert "Search not completed" not in said


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ("BREAK_GANG", "invalid end state"),
        ("BREAK_LIMIT", "assertion violated"),
        ("BREAK_COMING", "invalid end state"),
    ],
)
def test_without_one_of_the_precautions_it_is_found_wrong(tmp_path: Path, broken: str, fault: str) -> None:
    assert fault in check(tmp_path, f"-D{broken}")
