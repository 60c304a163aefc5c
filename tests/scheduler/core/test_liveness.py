"""Liveness of a container, for each combination of mounts, connections and the Engine's list."""

import pytest

from convgpu.core.liveness import Listing, Mount, evaluate

OLD, NEW, LATER = Mount(1, 10.0), Mount(1, 95.0), Mount(1, 101.0)
ASKED, NOW = 100.0, 102.0


def listing(*states: str) -> Listing:
    return Listing(ASKED, states)


@pytest.mark.parametrize(
    ("mounts", "connected", "listed", "runs", "believed"),
    [
        # Without a list the mounts decide.
        ({"x": OLD}, False, None, True, "x"),
        ({}, True, None, False, ""),
        ({}, False, None, False, ""),
        # A list with a running container counts, with mounts or without.
        ({"x": OLD}, False, listing("running"), True, "x"),
        ({"x": OLD}, False, listing("paused"), True, "x"),
        ({"x": OLD}, False, listing("restarting"), True, "x"),
        ({"x": OLD}, False, listing("a word of a later Engine"), True, "x"),
        ({"x": OLD}, False, listing("exited", "running"), True, "x"),
        ({}, False, listing("running"), True, ""),
        # A list without one ends older mounts, if no process is connected.
        ({"x": OLD}, False, listing(), False, ""),
        ({"x": OLD}, False, listing("exited"), False, ""),
        ({"x": OLD}, False, listing("dead", "created", "removing"), False, ""),
        ({"x": OLD}, True, listing(), True, "x"),
        ({}, True, listing(), True, ""),
        # Mounts that came afterwards, or of a container that may be about to start, stay.
        ({"x": LATER}, False, listing(), True, "x"),
        ({"x": LATER, "y": OLD}, False, listing("exited"), True, "x"),
        ({"x": NEW}, False, listing("created"), True, "x"),
        ({"x": NEW}, False, listing("exited"), True, "x"),
        ({"x": NEW}, False, listing(), False, ""),
        # Recorded before the clock was set back.
        ({"x": Mount(1, 500.0)}, False, listing(), False, ""),
    ],
)
def test_decisions(
    mounts: dict[str, Mount], connected: bool, listed: Listing | None, runs: bool, believed: str
) -> None:
    decision = evaluate(mounts, connected=connected, listing=listed, since=10.0, now=NOW)
    assert (decision.runs, "".join(sorted(decision.mounts))) == (runs, believed)


def test_an_unmount_after_the_listing_was_requested_stays() -> None:
    assert not evaluate({}, connected=False, listing=listing("running"), since=100.5, now=NOW).runs
