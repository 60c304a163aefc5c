"""docs/model/gate.pml under spin: nothing is submitted while a process is stopped, and nobody waits for ever."""

import pytest
from verifier import check

pytestmark = [pytest.mark.spin, pytest.mark.hangs_after(2000.0)]  # spin itself gives up after 1,800 s

MODEL = "gate.pml"


@pytest.mark.parametrize(
    "sizes",
    [("THREADS=2", "SUBMISSIONS=1", "STOPS=1"), ("THREADS=1", "SUBMISSIONS=2", "STOPS=2", "STEPS")],
    ids=" ".join,
)
def test_no_submission_passes_a_closed_gate_and_no_thread_waits_for_ever(sizes: tuple[str]) -> None:
    said = check(MODEL, *sizes)
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
def test_without_one_of_the_precautions_it_is_found_wrong(broken: str, fault: str) -> None:
    assert fault in check(MODEL, "SUBMISSIONS=1", "STOPS=1", broken, optimise="-O0")
