"""What holders may release together."""

import pytest

from convgpu.core.memory.release_sums import subset_sums


def test_sums_of_subsets() -> None:
    assert subset_sums({3: 1, 8: 1}, 100) == [0, 3, 8, 11]
    assert subset_sums({3: 2, 8: 1}, 100) == [0, 3, 6, 8, 11, 14]
    assert subset_sums({2**power: 1 for power in range(11)}, 10_000) is None
    assert subset_sums(dict.fromkeys(range(1, 46), 1), 100) is None  # at least 1,036


@pytest.mark.parametrize(
    ("bound", "sums"),
    [(1, [0, 3]), (3, [0, 3]), (4, [0, 3, 6]), (7, [0, 3, 6, 8]), (9, [0, 3, 6, 8, 11]), (15, [0, 3, 6, 8, 11, 14])],
)
def test_of_the_sums_that_reach_a_bound_only_the_least_is_said(bound: int, sums: list[int]) -> None:
    assert subset_sums({3: 2, 8: 1}, bound) == sums


def test_sizes_above_the_bound_make_no_sums_too_many() -> None:
    assert subset_sums({2**power: 1 for power in range(40)}, 4) == [0, 1, 2, 3, 4]


def test_of_either_size_a_sum_has_one_at_most() -> None:
    assert subset_sums({8: 1}, 100, [(2, 3)]) == [0, 2, 3, 8, 10, 11]
    assert subset_sums({}, 4, [(2, 3), (2, 5)]) == [0, 2, 3, 4]
    assert subset_sums({}, 1, [(2, 3)]) == [0, 2]
    assert subset_sums({8: 1}, 100, [(2, 3)], most=5) is None
