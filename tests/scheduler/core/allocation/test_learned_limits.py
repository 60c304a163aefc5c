"""When limits are learned, by the peaks of a container."""

from convgpu.core.allocation.learned_limits import PeakFollower

GIB = 1 << 30


def test_a_peak_is_learned_when_it_has_not_risen_for_long_enough() -> None:
    follower = PeakFollower(180.0)
    assert follower.update("a", {"g0": 3 * GIB, "g1": 0}, 0.0) is None
    assert follower.update("a", {"g0": 4 * GIB, "g1": 0}, 170.0) is None
    assert follower.update("a", {"g0": 4 * GIB, "g1": 0}, 349.0) is None
    assert follower.update("a", {"g0": 4 * GIB, "g1": 0}, 350.0) == {"g0": int(4.6 * GIB), "g1": 0}
    assert follower.update("a", {"g0": 4 * GIB, "g1": 0}, 400.0) is None  # told once


def test_within_the_margin_the_learned_limit_stays_and_above_it_the_whole_limit_is_back() -> None:
    follower = PeakFollower(10.0)
    follower.update("a", {"g0": 100}, 0.0)
    assert follower.update("a", {"g0": 100}, 10.0) == {"g0": 114}
    assert follower.update("a", {"g0": 110}, 11.0) is None
    assert follower.update("a", {"g0": 115}, 12.0) == {}
    assert follower.update("a", {"g0": 115}, 22.0) == {"g0": 132}


def test_nothing_is_learned_of_who_uses_nothing_or_has_gone() -> None:
    follower = PeakFollower(10.0)
    follower.update("a", {"g0": 0}, 0.0)
    assert follower.update("a", {"g0": 0}, 100.0) is None
    follower.update("b", {"g0": 5}, 0.0)
    follower.forget({"a"})
    assert follower.update("b", {"g0": 5}, 100.0) is None  # the same name, another container
