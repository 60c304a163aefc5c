"""Thresholds, granules and limits that make no sense are refused with the figure that would do."""

import pytest

from convgpu.core.oversubscription import (
    check_host_memory,
    check_reuse,
    host_memory,
    parse_granule,
    parse_threshold,
    plan,
    promise,
    reuse_count,
)
from convgpu.core.volume_options import OptionError

GIB = 1 << 30


@pytest.mark.parametrize(("text", "threshold"), [("1", 1.0), ("1.0", 1.0), ("1.5", 1.5), ("16", 16.0)])
def test_threshold(text: str, threshold: float) -> None:
    assert parse_threshold(text) == threshold


@pytest.mark.parametrize("text", ["0.9", "0", "-2", "17", "inf", "nan", "two", ""])
def test_threshold_without_sense(text: str) -> None:
    with pytest.raises(OptionError, match="give a number from 1 to 16"):
        parse_threshold(text)


def test_promise_host_memory_and_reuse_count() -> None:
    assert promise(140 * GIB, 1.5) == 210 * GIB
    assert host_memory(140 * GIB, 1.5) == 70 * GIB
    assert host_memory(140 * GIB, 1.0) == 0
    assert reuse_count(140 * GIB, 1.5, 40 * GIB) == 5


def test_threshold_that_the_host_cannot_hold() -> None:
    check_host_memory(140 * GIB, 1.4, 125 * GIB)
    with pytest.raises(OptionError, match=r"the largest threshold that fits is 1\.44"):
        check_host_memory(140 * GIB, 2.0, 125 * GIB)
    with pytest.raises(OptionError, match=r"the largest threshold that fits is 1$"):
        check_host_memory(140 * GIB, 2.0, 0)


def test_granule() -> None:
    assert parse_granule("40g", 140 * GIB) == 40 * GIB


@pytest.mark.parametrize(
    ("text", "reason"),
    [("141g", "largest granule that fits is 143360m"), ("0", "granule"), ("1k", "at least 1m"), ("much", "granule")],
)
def test_granule_without_sense(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse_granule(text, 140 * GIB)


def test_reuse_count_is_held_to() -> None:
    check_reuse("GPU-1", 4, 5)
    with pytest.raises(OptionError, match="its reuse count is 5: wait until one ends"):
        check_reuse("GPU-1", 5, 5)
    check_reuse("GPU-1", 500, 0)  # none was set


def test_a_plan_for_a_host() -> None:
    capacity = {"g0": 140 * GIB, "g1": 80 * GIB, "sick": 0}
    made = plan(1.5, "40g", capacity, 512 * GIB)
    assert [made.reuse_count(device) for device in capacity] == [5, 3, 0]
    assert [plan(1.0, "", capacity, 0).reuse_count(device) for device in capacity] == [0, 0, 0]
    with pytest.raises(OptionError, match="largest granule that fits is 81920m"):
        plan(1.5, "100g", capacity, 512 * GIB)
    with pytest.raises(OptionError, match=r"takes 110GiB of the host, .* the largest threshold that fits is 1\.45"):
        plan(1.5, "40g", capacity, 200 * GIB)
    assert plan(1.5, "40g", capacity, None).threshold == 1.5
