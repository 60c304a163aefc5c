"""docs/model/turns.pml under spin: all end, and nobody is overtaken for ever, with the host's memory bounded."""

import pytest
from verifier import check

pytestmark = [pytest.mark.spin, pytest.mark.hangs_after(2000.0)]  # spin itself gives up after 1,800 s

MODEL = "turns.pml"


@pytest.mark.parametrize(
    "sizes",
    [
        ("DEVICES=2",),
        ("DEVICES=2", "CONTAINERS=3", "LIMIT=1"),
        ("DEVICES=1", "CONTAINERS=3"),
        ("DEVICES=1", "CONTAINERS=3", "CARD=3", "LIMIT=3", "POOL=2"),
        ("DEVICES=2", "ENDLESS"),
        ("DEVICES=1", "CONTAINERS=3", "ENDLESS"),
        ("DEVICES=1", "CONTAINERS=3", "CARD=3", "LIMIT=3", "POOL=2", "ENDLESS"),
    ],
    ids=" ".join,
)
def test_everybody_ends_and_nobody_is_overtaken_for_ever(sizes: tuple[str, ...]) -> None:
    said = check(MODEL, *sizes)
    assert "errors: 0" in said, said
    assert "Search not completed" not in said


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (("BREAK_HOST",), "invalid end state"),
        (("BREAK_SLACK",), "invalid end state"),
        (("BREAK_PAUSED",), "invalid end state"),
        (("BREAK_WHOLE",), "invalid end state"),
        (("BREAK_GO",), "assertion violated"),
        (("BREAK_AGE", "ENDLESS"), "assertion violated (overtaken"),
        (("BREAK_BACKFILL", "ENDLESS"), "assertion violated (((("),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_without_one_of_the_precautions_it_is_found_wrong(broken: tuple[str, ...], fault: str) -> None:
    assert fault in check(MODEL, *broken, optimise="-O0")
