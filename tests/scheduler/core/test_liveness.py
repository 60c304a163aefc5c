"""Has the container ended? The table of what mounts, connections and the Engine's list say."""

import pytest

from convgpu.core.liveness import Listing, Mount, judge

OLD, NEW, LATER = Mount(1, 10.0), Mount(1, 95.0), Mount(1, 101.0)
ASKED, NOW = 100.0, 102.0


def listing(*states: str) -> Listing:
    return Listing(ASKED, states)


@pytest.mark.parametrize(
    ("mounts", "connected", "listed", "runs", "kept"),
    [
        # Without a list the mounts decide.
        ({"x": OLD}, False, None, True, "x"),
        ({}, True, None, False, ""),
        ({}, False, None, False, ""),
        # A list with a running container is believed, with mounts or without.
        ({"x": OLD}, False, listing("running"), True, "x"),
        ({"x": OLD}, False, listing("paused"), True, "x"),
        ({"x": OLD}, False, listing("restarting"), True, "x"),
        ({"x": OLD}, False, listing("a word of a later Engine"), True, "x"),
        ({"x": OLD}, False, listing("exited", "running"), True, "x"),
        ({}, False, listing("running"), True, ""),
        # A list without one contradicts what is older, if nobody is connected.
        ({"x": OLD}, False, listing(), False, ""),
        ({"x": OLD}, False, listing("exited"), False, ""),
        ({"x": OLD}, False, listing("dead", "created", "removing"), False, ""),
        ({"x": OLD}, True, listing(), True, "x"),
        ({}, True, listing(), True, ""),
        # What came afterwards, or is about to start, is not contradicted.
        ({"x": LATER}, False, listing(), True, "x"),
        ({"x": LATER, "y": OLD}, False, listing("exited"), True, "x"),
        ({"x": NEW}, False, listing("created"), True, "x"),
        ({"x": NEW}, False, listing("exited"), True, "x"),
        ({"x": NEW}, False, listing(), False, ""),
        # Noted before the clock was set back.
        ({"x": Mount(1, 500.0)}, False, listing(), False, ""),
    ],
)
def test_judgements(mounts: dict[str, Mount], connected: bool, listed: Listing | None, runs: bool, kept: str) -> None:
    judgement = judge(mounts, connected=connected, listing=listed, since=10.0, now=NOW)
    assert (judgement.runs, "".join(sorted(judgement.mounts))) == (runs, kept)


def test_an_unmount_after_the_question_is_not_undone_by_the_answer() -> None:
    assert not judge({}, connected=False, listing=listing("running"), since=100.5, now=NOW).runs
