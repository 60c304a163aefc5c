"""docs/model/gate.pml under spin: nothing is submitted while a process is stopped, and nobody waits for ever."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.spin

MODEL = Path(__file__).parents[2] / "docs/model/gate.pml"


def check(folder: Path, *definitions: str, optimise: str = "-O1") -> str:
    """Run the verifier, which looks for violated assertions and for processes that wait for ever."""
    flags = [f"-D{definition}" for definition in definitions]
    for command in (
        ["spin", "-a", *flags, str(MODEL)],
        ["gcc", optimise, "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=2048", "-o", "pan", "pan.c"],
        ["./pan", "-m100000"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "sizes",
    [("THREADS=2", "SUBMISSIONS=1", "STOPS=1"), ("THREADS=1", "SUBMISSIONS=2", "STOPS=2", "STEPS")],
    ids=" ".join,
)
def test_no_submission_passes_a_closed_gate_and_no_thread_waits_for_ever(tmp_path: Path, sizes: tuple[str]) -> None:
    said = check(tmp_path, *sizes)
    assert "errors: 0" in said, said
    assert "Search not completed" not in said


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ("BREAK_MEMBARRIER", "assertion violated"),
        ("BREAK_DRAIN", "assertion violated"),
        ("BREAK_WAKE", "invalid end state"),
        ("BREAK_SEEN", "invalid end state"),
    ],
)
def test_without_one_of_the_precautions_it_is_found_wrong(tmp_path: Path, broken: str, fault: str) -> None:
    assert fault in check(tmp_path, "SUBMISSIONS=1", "STOPS=1", broken, optimise="-O0")
