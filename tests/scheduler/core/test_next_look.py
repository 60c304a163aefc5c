"""When the audit looks: nobody can hold memory just between two looks."""

from collections.abc import Callable
from random import Random

import pytest

from convgpu.core.audit.overuse import NO_MOMENT, OveruseBudget, next_look

INTERVAL, AFTER = 2.0, 10.0


def ended_after(pause: Callable[[], float], free: float) -> float:
    """Return after how many seconds somebody is ended who frees for `free` of each two, infinite after an hour.

    The middle of that is when looks would come that kept time.
    """
    budget, now = OveruseBudget(AFTER), 0.0
    while now < 3600:
        now += min(pause(), budget.pause)
        is_free = (now + free / 2) % INTERVAL <= free
        if budget.update(frozenset() if is_free else {("a", "x")}, now)[1]:
            return now
    return float("inf")


def at_random(seed: int) -> Callable[[], float]:
    chance = Random(seed)  # noqa: S311 - so that the test is the same each time
    return lambda: next_look(INTERVAL, chance.random())


@pytest.mark.parametrize(("free", "most"), [(0.05, 20.0), (0.5, 40.0), (1.0, 120.0)])
def test_who_holds_memory_between_looks_is_ended(free: float, most: float) -> None:
    assert ended_after(lambda: INTERVAL, free) == float("inf")
    times = sorted(ended_after(at_random(seed), free) for seed in range(50))
    assert times[0] >= AFTER
    assert times[25] <= most


def test_looks_are_never_further_apart_than_was_asked_for_nor_of_one_moment() -> None:
    assert [next_look(INTERVAL, chance) for chance in (0.0, 1.0)] == [0.5, INTERVAL]
    assert next_look(INTERVAL, 0.0) > NO_MOMENT
