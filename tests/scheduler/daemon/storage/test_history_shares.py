"""Who has most rows of the history loses its oldest first."""

import pytest

from convgpu.daemon.storage.history_shares import HistoryShares

Rows = list[tuple[int, str, str]]


def rows(*containers: str, kind: str = "accepted", first: int = 1) -> Rows:
    return [(number, kind, container) for number, container in enumerate(containers, start=first)]


@pytest.mark.parametrize(
    ("there", "bound", "excess"),
    [
        (rows("a", "b"), 2, []),
        (rows("a", "b", "b", "b"), 2, [2, 3]),
        (rows(*"abbbccc"), 4, [2, 5, 3]),  # by size and name: b, c, and b again
        (rows(*"aaa"), 0, [1, 2, 3]),
        (rows(*"aaa", kind="stopped") + rows(*"b" * 30, first=4), 30, [4, 5, 6]),
        (rows(*"aab", kind="stopped") + rows(*"c" * 20, first=4), 20, [1, 4, 5]),
        (rows(*"aab", kind="policy"), 2, [1]),
    ],
)
def test_rows_beyond_the_bound(there: Rows, bound: int, excess: list[int]) -> None:
    shares = HistoryShares(there, bound)
    assert shares.take_excess(100) == excess
    assert shares.take_excess(100) == []


def test_no_more_are_taken_at_once_than_asked() -> None:
    shares = HistoryShares(rows(*"aaaab"), 1)
    assert [shares.take_excess(2), shares.take_excess(2), shares.take_excess(2)] == [[1, 2], [3, 4], []]


def test_rows_that_are_too_old_count_no_more() -> None:
    shares = HistoryShares(rows(*"ababab"), 1)
    shares.forget_until(4)
    assert shares.take_excess(100) == [5]
