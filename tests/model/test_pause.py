"""docs/model/pause.pml under spin: no assertion is violated, and one is without each of its precautions."""

import re

import pytest
from verifier import check

pytestmark = [pytest.mark.spin, pytest.mark.hangs_after(2000.0)]  # spin itself gives up after 1,800 s

ENDED = "((dead[p]&&(need[p]==0))&&(target[p]==0))"
MODEL = "pause.pml"


@pytest.mark.parametrize(
    "sizes",
    [
        ("PROGRAMS=2", "MEMORY=2", "CALLS=2", "KILLS=1"),
        ("PROGRAMS=2", "MEMORY=2", "CALLS=3", "KILLS=0"),
        ("PROGRAMS=2", "MEMORY=3", "LIMIT=3", "CALLS=2", "KILLS=0"),
        ("PROGRAMS=3", "MEMORY=3", "CALLS=1", "KILLS=0"),
        ("PROGRAMS=2", "MEMORY=2", "CALLS=2", "KILLS=0", "CHANGES=1"),
        ("PROGRAMS=2", "MEMORY=2", "CALLS=1", "KILLS=1", "CHANGES=1"),
        ("PROGRAMS=2", "MEMORY=2", "LIMIT=1", "MOST=2", "CALLS=2", "KILLS=0", "CHANGES=2"),
    ],
    ids=" ".join,
)
def test_no_deadlock_no_lost_wake_up_and_no_failure_by_settling(sizes: tuple[str, ...]) -> None:
    said = check(MODEL, *sizes)
    assert "errors: 0" in said, said
    assert "Search not completed" not in said
    assert "max search depth too small" not in said


@pytest.mark.parametrize(
    ("broken", "assertion", "calls"),
    [
        ("BREAK_ORDER", "!(safe)", 2),
        ("BREAK_SECOND_TAKE", "!(safe)", 2),
        ("BREAK_REPORT", "!(safe)", 3),
        ("BREAK_GIVE", "!(safe)", 2),
        ("BREAK_SAFETY", ENDED, 2),
        ("BREAK_SETTLING", "0", 2),
        ("BREAK_LAST_TRY", "0", 2),
    ],
)
def test_without_one_of_the_precautions_it_is_found_wrong(broken: str, assertion: str, calls: int) -> None:
    kills = 0 if calls > 2 else 1
    said = check(MODEL, "PROGRAMS=2", "MEMORY=2", f"CALLS={calls}", f"KILLS={kills}", broken, optimise="-O0")
    assert violated(said) == assertion


@pytest.mark.parametrize(
    ("broken", "sizes", "assertion"),
    [
        ("BREAK_LIMIT", ("CHANGES=1",), "!(((target[p]>0)&&(target[p]<limit[p])))||(leased[p]==limit[p]))"),
        ("BREAK_RAISE", ("LIMIT=1", "MOST=2", "CHANGES=2"), ENDED),
    ],
)
def test_changes_of_limits_without_one_of_the_precautions_are_found_wrong(
    broken: str, sizes: tuple[str, ...], assertion: str
) -> None:
    said = check(MODEL, "PROGRAMS=2", "MEMORY=2", "CALLS=2", "KILLS=0", *sizes, broken)
    assert violated(said) == assertion


def violated(said: str) -> str:
    found = re.search(r"assertion violated\s+(.*?) \(at depth", said)
    assert found, said
    return found[1].removeprefix("( ").removesuffix(" )")
