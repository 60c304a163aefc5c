"""Overuse that rests on what a search found, and what searches after the look find."""

from collections.abc import Sequence

import pytest

from convgpu.core.audit.claimed import ClaimedOveruse

A = ("a", "gpu")


class Searches:
    """What searches found of any container, by when they began; the newest tells."""

    def __init__(self) -> None:
        self.found: list[tuple[float, int]] = []

    def since(self, _name: str, _device: str, since: float) -> int | None:
        begun, size = self.found[-1] if self.found else (-1.0, 0)
        return size if begun > since else None


@pytest.mark.parametrize(
    ("after_each", "counts"),
    [
        ([8, 8, 8, 8], [False, True, True, True]),
        ([0, 0, 0, 0], [False, False, False, False]),  # freed, and something else each time
        ([4, 5, 4, 5], [False, False, True, False]),  # as much as it lacks to be above
        ([None, 8, None, 8], [False, False, True, True]),  # no search has ended
        ([8, None, None, 0], [False, True, True, True]),
        ([8, None, None, 0, 0], [False, True, True, True, False]),
    ],
)
def test_a_look_counts_when_the_next_search_finds_as_much(
    after_each: Sequence[int | None], counts: Sequence[bool]
) -> None:
    judged, searches, seen = ClaimedOveruse(), Searches(), []
    for look, found in enumerate(after_each):
        at = 2.0 * look
        seen.append(judged.judge("gpu", {"a": 5}, at, searches.since) == {A})
        if found is not None:
            searches.found.append((at + 0.5, found))
    assert seen == counts


def test_who_is_below_or_has_less_to_be_found_begins_anew() -> None:
    judged, searches = ClaimedOveruse(), Searches()
    judged.judge("gpu", {"a": 5}, 0.0, searches.since)
    searches.found.append((0.5, 8))
    assert judged.judge("gpu", {"a": 5}, 2.0, searches.since) == {A}
    assert judged.judge("gpu", {}, 4.0, searches.since) == set()
    assert judged.judge("gpu", {"a": 5}, 6.0, searches.since) == set()


def test_others_and_other_devices_are_judged_apart() -> None:
    judged, searches = ClaimedOveruse(), Searches()
    for at in (0.0, 2.0):
        rows = judged.judge("gpu", {"a": 5, "b": 9}, at, searches.since)
        judged.judge("other", {}, at, searches.since)
        searches.found.append((at + 0.5, 8))
    assert rows == {A}


def test_it_counts_when_nobody_tells_for_long() -> None:
    judged = ClaimedOveruse()
    seen = [judged.judge("gpu", {"a": 5}, float(at), lambda *_: None) == {A} for at in range(0, 16, 2)]
    assert seen == [False] * 5 + [True] * 3


def test_who_is_below_when_it_is_said_counts_then() -> None:
    """Short dips below the limit had each look forgotten before a search told of it."""
    judged, searches = ClaimedOveruse(), Searches()
    judged.judge("gpu", {"a": 5}, 0.0, searches.since)
    assert judged.judge("gpu", {}, 2.0, searches.since) == set()
    searches.found.append((2.5, 8))
    assert judged.judge("gpu", {}, 4.0, searches.since) == {A}
    assert judged.judge("gpu", {}, 6.0, searches.since) == set()
    assert not judged._open
