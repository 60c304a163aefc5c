"""The serving order: new high-water marks, age, priority, policy (docs/policies.md)."""

import pytest
from checked_host import CheckedHost

from convgpu.core.machine import Machine
from convgpu.policies.memory import BestFit, Fifo


def make_host(capacity: int, *containers: tuple[str, int]) -> tuple[CheckedHost, dict[str, int]]:
    host = CheckedHost(Machine({"gpu": capacity}, Fifo()))
    for name, limit in containers:
        host.create(name, {"gpu": limit})
    return host, {name: host.start(name) for name, _ in containers}


@pytest.mark.parametrize("seconds", [30.0, 100.0])
def test_a_new_high_water_mark_goes_before_newcomers_overdue_or_not(seconds: float) -> None:
    host, start = make_host(16, ("first", 6), ("half", 10), ("other", 10))
    host.allocate(start["half"], 4)
    host.allocate(start["other"], 10)
    newcomer = host.allocate(start["first"], 6)
    host.now = seconds
    raising = host.allocate(start["half"], 6)
    host.free(start["other"], 4)
    assert (raising in host.answers, newcomer in host.answers) == (True, False)
    host.check()


@pytest.mark.parametrize("priority", [0, 10])
def test_among_new_high_water_marks_the_container_that_started_first_comes_first(priority: int) -> None:
    """Whatever the policy, and whichever request is older: with best-fit many were half served (decision 212)."""
    host = CheckedHost(Machine({"gpu": 16}, BestFit()))
    host.create("a", {"gpu": 6})
    host.create("b", {"gpu": 7}, priority=priority)
    host.create("other", {"gpu": 9})
    start = {name: host.start(name) for name in ("a", "b", "other")}
    host.allocate(start["other"], 9)
    host.allocate(start["a"], 3)
    host.allocate(start["b"], 4)
    closer = host.allocate(start["b"], 3)
    host.now = 100.0
    of_first = host.allocate(start["a"], 2)
    host.free(start["other"], 3)
    assert (of_first in host.answers, closer in host.answers) == (priority == 0, priority > 0)
    host.check()


def test_two_holders_that_re_acquire_freed_memory_in_turns_do_not_starve_an_overdue_allocation() -> None:
    host, start = make_host(10, ("x", 6), ("y", 6), ("n", 4))
    x, y = start["x"], start["y"]
    host.allocate(y, 2)
    host.allocate(x, 6)
    waits = host.allocate(start["n"], 4)
    host.allocate(y, 4)
    host.free(x, 4)  # both have held 6 since n waits
    host.now = 100.0
    again = host.allocate(x, 4)
    host.free(y, 4)
    assert (waits in host.answers, again in host.answers) == (True, False)
    host.end(start["n"])
    assert again in host.answers
    host.check()


@pytest.mark.parametrize("context", [0, 1])
def test_who_holds_nothing_but_a_context_comes_after_those_that_have_begun(context: int) -> None:
    """`best-fit` would choose the larger of the two, and what the other holds would be of no use meanwhile.

    With its context a container may be granted its whole limit, and then uses that without a request.
    """
    host = CheckedHost(Machine({"gpu": 16}, BestFit()))
    for name, limit in (("holder", 8), ("begun", 8), ("fresh", 9)):
        host.create(name, {"gpu": limit})
    holder, begun, fresh = (host.start(name) for name in ("holder", "begun", "fresh"))
    if context:
        host.allocate(begun, context, is_context=True)
    host.allocate(begun, 4 - context)
    host.allocate(holder, 8)
    host.allocate(fresh, 1, is_context=True)
    rest, first = host.allocate(begun, 4), host.allocate(fresh, 8)
    assert host.pending.keys() == {rest, first}
    host.end(holder)
    assert host.pending.keys() == {first}
    host.end(begun)
    assert not host.pending
    host.check()
