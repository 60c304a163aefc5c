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


def held_by_who_knows(pause: Callable[[], float], held: float) -> float:
    """Return the part of ten minutes in which somebody has memory for so long after each look, unless it is ended."""
    budget, now, part, until = OveruseBudget(AFTER), 0.0, 0.0, 0.0
    while now < 600:
        before = now
        now += min(pause(), budget.pause)
        part += min(now - before, held)
        is_over = now < until
        until = now + held
        if budget.update({("a", "x")} if is_over else frozenset(), now)[1]:
            break
    return part / 600


def at_random(seed: int) -> Callable[[], float]:
    chance = Random(seed)  # noqa: S311 - so that the test is the same each time
    return lambda: next_look(INTERVAL, chance.random())


@pytest.mark.parametrize(("free", "most"), [(0.05, 20.0), (0.5, 40.0), (1.0, 120.0)])
def test_who_holds_memory_between_looks_is_ended(free: float, most: float) -> None:
    assert ended_after(lambda: INTERVAL, free) == float("inf")
    times = sorted(ended_after(at_random(seed), free) for seed in range(50))
    assert times[0] >= AFTER
    assert times[25] <= most


def test_who_knows_when_each_look_was_has_memory_for_a_small_part_of_the_time() -> None:
    """A look that comes 0.5 to 2 s after the last one left it memory for half of the time (decision 202)."""
    parts = [held_by_who_knows(at_random(1), held / 20) for held in range(1, 40)]
    assert max(parts) < 0.35


def test_looks_are_never_further_apart_than_was_asked_for_nor_of_one_moment() -> None:
    assert [next_look(INTERVAL, chance) for chance in (0.0, 0.999999)] == [NO_MOMENT, INTERVAL]
