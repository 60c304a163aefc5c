"""Who goes before whom: advances, age, priority, policy (docs/policies.md)."""

import pytest
from world import World

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo


def world(capacity: int, *containers: tuple[str, int]) -> tuple[World, dict[str, int]]:
    w = World(Machine({"gpu": capacity}, Fifo()))
    for name, limit in containers:
        w.create(name, {"gpu": limit})
    return w, {name: w.start(name) for name, _ in containers}


@pytest.mark.parametrize("seconds", [30.0, 100.0])
def test_who_gets_nearer_to_its_end_goes_before_those_that_hold_nothing_overdue_or_not(seconds: float) -> None:
    w, start = world(16, ("first", 6), ("half", 10), ("other", 10))
    w.allocate(start["half"], 4)
    w.allocate(start["other"], 10)
    newcomer = w.allocate(start["first"], 6)
    w.now = seconds
    advance = w.allocate(start["half"], 6)
    w.free(start["other"], 4)
    assert (advance in w.answers, newcomer in w.answers) == (True, False)
    w.check()


def test_among_those_that_get_nearer_to_their_ends_the_policy_chooses_and_not_age() -> None:
    w, start = world(16, ("a", 6), ("b", 7), ("other", 9))
    w.dispatch(e.PolicyChosen("best-fit"))
    w.allocate(start["other"], 9)
    w.allocate(start["a"], 3)
    w.allocate(start["b"], 4)
    older = w.allocate(start["a"], 2)
    w.now = 100.0
    closer = w.allocate(start["b"], 3)
    w.free(start["other"], 3)
    assert (closer in w.answers, older in w.answers) == (True, False)
    w.check()


def test_two_that_take_in_turns_what_they_free_cannot_keep_an_overdue_one_waiting() -> None:
    w, start = world(10, ("x", 6), ("y", 6), ("n", 4))
    x, y = start["x"], start["y"]
    w.allocate(y, 2)
    w.allocate(x, 6)
    w.free(x, 4)
    w.allocate(y, 4)  # both held 6 once
    waits = w.allocate(start["n"], 4)
    w.now = 100.0
    again = w.allocate(x, 4)
    w.free(y, 4)
    assert (waits in w.answers, again in w.answers) == (True, False)
    w.end(start["n"])
    assert again in w.answers
    w.check()
