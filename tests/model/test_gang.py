"""docs/model/gang.pml under spin: gangs end, and do not without one of the precautions."""

import pytest
from verifier import check

pytestmark = [pytest.mark.spin, pytest.mark.hangs_after(2000.0)]  # spin itself gives up after 1,800 s

MODEL = "gang.pml"


def test_gangs_that_are_admitted_as_a_whole_end() -> None:
    said = check(MODEL)
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
def test_without_one_of_the_precautions_it_is_found_wrong(broken: str, fault: str) -> None:
    assert fault in check(MODEL, broken)
