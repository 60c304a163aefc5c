"""Backfill: who provably cannot delay an overdue allocation goes on behind it (docs/policies.md)."""

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo


def make_host(*capacity: int) -> CheckedHost:
    devices = {"gpu" if not number else f"gpu{number}": size for number, size in enumerate(capacity)}
    return CheckedHost(Machine(devices, Fifo(), starvation_timeout=10.0))


def arrive(host: CheckedHost, name: str, size: int, limit: int | None = None, **limits: int) -> int:
    """Create a container and let it request `size` bytes of the first device; return the request."""
    host.create(name, {"gpu": limit or size, **limits})
    return host.allocate(host.start(name), size)


def test_a_small_container_goes_on_behind_a_large_one_that_only_the_end_of_a_holder_can_serve() -> None:
    host = make_host(16)
    arrive(host, "holder", 11)
    big = arrive(host, "hf-big", 8)
    host.now = 100.0
    small = arrive(host, "small", 2)
    assert (small in host.answers, big in host.answers) == (True, False)
    host.finish("holder")
    assert big in host.answers  # beside the small one
    host.check()


@pytest.mark.parametrize(
    ("limit", "goes_on"),
    [
        (4, True),  # 12 are left, as much as the large one may use
        (5, False),  # 11 would be left
    ],
)
def test_the_whole_limits_of_both_count(limit: int, goes_on: bool) -> None:
    host = make_host(16)
    arrive(host, "holder", 11)
    arrive(host, "hf-big", 8, limit=12)
    host.now = 100.0
    assert (arrive(host, "small", 1, limit=limit) in host.answers) == goes_on
    host.check()


def test_nobody_goes_on_who_takes_what_the_end_of_one_holder_would_give() -> None:
    host = make_host(16)
    arrive(host, "three", 3)
    arrive(host, "eight", 8)
    big = arrive(host, "big", 8)
    host.now = 100.0
    small = arrive(host, "small", 2)
    assert small in host.pending
    host.finish("three")  # 8 are free: no more than the large one needs
    assert big in host.answers
    host.check()


def test_those_that_go_on_count_for_those_that_follow() -> None:
    host = make_host(16)
    arrive(host, "holder", 11)
    arrive(host, "big", 13)
    host.now = 100.0
    first, second = arrive(host, "first", 2), arrive(host, "second", 2)
    assert (first in host.answers, second in host.answers) == (True, False)
    host.finish("first")
    assert second in host.answers
    host.check()


@pytest.mark.parametrize("starts_another", [False, True])
def test_a_holder_gets_nothing_that_it_could_give_back_only_after_one_that_went_on(starts_another: bool) -> None:
    host = make_host(16)
    host.create("h", {"gpu": 10})
    host.create("g", {"gpu": 8})
    h, g = host.start("h"), host.start("g")
    host.allocate(g, 4)
    host.allocate(h, 5)
    big = arrive(host, "big", 14)
    host.now = 100.0
    small = arrive(host, "small", 2)
    assert small in host.answers
    if starts_another:  # which holds nothing: no fact that ends the proof
        host.create("another", {"gpu": 1})
        host.start("another")
    host.allocate(g, 1)
    waits = host.allocate(h, 2)  # then neither could get its limit unless the small one ends
    assert {waits, big} == host.pending.keys()
    host.finish("g")
    assert waits in host.answers
    host.finish("h")
    assert big in host.answers
    host.check()


def test_limits_on_a_second_device_count_as_well() -> None:
    host = make_host(16, 16)
    arrive(host, "holder", 11)
    host.create("other", {"gpu1": 12})
    host.allocate(host.start("other"), 12, "gpu1")
    arrive(host, "big", 8, gpu1=16)
    host.now = 100.0
    assert arrive(host, "both", 2, gpu1=2) in host.pending  # the large one may need all of the second device
    assert arrive(host, "one", 2) in host.answers
    host.check()


def test_external_memory_ends_the_proof_and_nobody_deadlocks() -> None:
    host = make_host(16)
    host.create("h", {"gpu": 12})
    h = host.start("h")
    host.allocate(h, 8)
    arrive(host, "big", 12)
    host.now = 100.0
    small = arrive(host, "small", 1)
    assert small in host.answers
    host.dispatch(e.CapacityChanged("gpu", 13))
    grown = host.allocate(h, 4)
    assert grown in host.answers
    host.check()


def test_who_went_past_one_that_was_not_overdue_does_not_keep_it_waiting() -> None:
    """A context may go past such a one: when a holder ends, the next is served beside it, and ends after it."""
    host = make_host(16)
    arrive(host, "holder", 8)
    large = arrive(host, "large", 9, limit=12)
    host.create("small", {"gpu": 6})
    context = host.allocate(host.start("small"), 1, is_context=True)
    assert (context in host.answers, large in host.answers) == (True, False)
    host.finish("holder")
    assert large in host.answers
    host.check()


def test_who_went_past_an_overdue_one_does_not_keep_those_waiting_that_were_not() -> None:
    host = make_host(16)
    arrive(host, "holder", 8)
    overdue = arrive(host, "overdue", 9, limit=10)
    host.now = 5.0
    later = arrive(host, "later", 9, limit=16)
    host.now = 12.0
    small = arrive(host, "small", 1)
    assert (small in host.answers, overdue in host.answers) == (True, False)
    host.finish("holder")
    assert (overdue in host.answers, later in host.answers) == (True, False)
    host.finish("overdue")
    assert later in host.answers  # although its limit and that of the small one are 17 of 16
    host.check()


def test_when_a_fact_ends_a_proof_those_on_other_devices_are_served() -> None:
    """A holder asked for what would leave the end of another one to that of the newcomer."""
    host = make_host(16, 16)
    arrive(host, "one", 5, limit=8)
    host.create("other", {"gpu": 10})
    other = host.start("other")
    host.allocate(other, 4)
    overdue = arrive(host, "overdue", 8)
    host.now = 100.0
    assert arrive(host, "small", 1, limit=2) in host.answers
    more = host.allocate(other, 3)
    assert (more in host.answers, overdue in host.answers) == (False, False)
    host.create("escaping", {"gpu1": 1})
    host.dispatch(e.UnleasedMemory("escaping", "gpu1", 1))
    assert more in host.answers
    host.check()


def test_a_limit_is_raised_as_soon_as_who_went_on_holds_nothing_any_more() -> None:
    """It waited for the next event: what its process had left was taken back after the limits had been looked at."""
    host = make_host(16)
    arrive(host, "holder", 11)
    big = arrive(host, "big", 8)
    host.now = 100.0
    small = arrive(host, "small", 2)
    assert small in host.answers
    session = host.answers[small].session
    host.dispatch(e.LimitsChanged("small", {"gpu": 4}))
    assert host.limit_changes[-1] == e.LimitInForce("small", "gpu", 2, 4)  # big could miss so much
    host.end(session)
    assert (host.limit_changes[-1], big in host.pending) == (e.LimitInForce("small", "gpu", 4, None), True)
    host.check()
