"""Priorities trade with age: five points weigh as much as one starvation timeout (docs/policies.md)."""

import pytest
from checked_host import CheckedHost

from convgpu.core.allocation.turns import head_start
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo


def waiting_host(older: int, younger: int, seconds: float) -> tuple[CheckedHost, int, int, int]:
    """Return a full host on which two newcomers of these priorities wait, the second since `seconds` later."""
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), starvation_timeout=10.0))
    for name, priority in (("holder", 0), ("older", older), ("younger", younger)):
        host.create(name, {"gpu": 16}, priority=priority)
    holder = host.start("holder")
    host.allocate(holder, 16)
    first = host.allocate(host.start("older"), 16)
    host.now = seconds
    second = host.allocate(host.start("younger"), 16)
    host.now = 1000.0
    host.end(holder)
    host.check()
    return host, holder, first, second


@pytest.mark.parametrize(
    ("older", "younger", "seconds", "is_first"),
    [
        (0, 0, 1.0, True),
        (0, 5, 9.0, False),  # one timeout of head start
        (0, 5, 11.0, True),
        (0, 100, 199.0, False),
        (0, 100, 201.0, True),
        (-100, 100, 399.0, False),  # the most by which anybody is overtaken: 40 timeouts
        (-100, 100, 401.0, True),
    ],
)
def test_of_two_overdue_allocations_the_priority_counts_as_age(
    older: int, younger: int, seconds: float, is_first: bool
) -> None:
    host, _, first, second = waiting_host(older, younger, seconds)
    assert (first in host.answers, second in host.answers) == (is_first, not is_first)


def test_an_urgent_newcomer_holds_others_back_at_once() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), starvation_timeout=10.0))
    for name, priority in (("holder", 0), ("urgent", 5), ("other", 0)):
        host.create(name, {"gpu": 16}, priority=priority)
    host.allocate(host.start("holder"), 8)
    urgent = host.allocate(host.start("urgent"), 16)
    host.now = 1.0
    other = host.allocate(host.start("other"), 4)
    assert {urgent, other} == host.pending.keys()
    host.check()


@pytest.mark.parametrize(("timeout", "expected"), [(0.0, 0.0), (60.0, 1200.0), (float("inf"), 0.0)])
def test_the_head_start_of_the_highest_priority(timeout: float, expected: float) -> None:
    assert head_start(100, timeout) == expected
