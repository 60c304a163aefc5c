"""The longest pause and the priority of a container, changed while its allocations wait."""

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.allocation.admission import GANG_TIMEOUT
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import RejectReason


def waiting_host() -> tuple[CheckedHost, int, int, int]:
    """Return a full host, its holder, and the requests of two containers that wait since 0 and 1."""
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), starvation_timeout=10.0))
    for name in ("holder", "a", "b"):
        host.create(name, {"gpu": 16})
    holder = host.start("holder")
    host.allocate(holder, 16)
    first = host.allocate(host.start("a"), 16)
    host.now = 1.0
    return host, holder, first, host.allocate(host.start("b"), 16)


@pytest.mark.parametrize(("seconds", "priority", "is_second"), [(2.0, 1, True), (500.0, 1, True), (500.0, 0, False)])
def test_a_higher_priority_puts_what_waits_forward(seconds: float, priority: int, is_second: bool) -> None:
    host, holder, first, second = waiting_host()
    host.dispatch(e.TermsChanged("b", None, priority))
    host.now = seconds
    host.end(holder)
    assert (first in host.answers, second in host.answers) == (not is_second, is_second)
    host.check()


def test_a_lower_priority_lets_those_go_on_who_were_held_back() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), starvation_timeout=10.0))
    for name, limit in (("holder", 8), ("urgent", 16), ("other", 8)):
        host.create(name, {"gpu": limit}, priority=5 if name == "urgent" else 0)
    host.allocate(host.start("holder"), 8)
    urgent = host.allocate(host.start("urgent"), 16)
    host.now = 1.0
    other = host.allocate(host.start("other"), 8)
    assert {urgent, other} == host.pending.keys()
    host.dispatch(e.TermsChanged("urgent", None, 0))
    assert other in host.answers
    host.check()


def test_a_pause_is_shortened_lengthened_and_made_endless() -> None:
    host, _, first, second = waiting_host()
    host.dispatch(e.TermsChanged("a", 5.0, 0))
    host.dispatch(e.TermsChanged("b", 5.0, 0))
    assert host.machine.next_deadline() == 5.0
    host.dispatch(e.TermsChanged("b", None, 0))
    host.dispatch(e.TermsChanged("a", 0.5, 0))  # it has waited for longer
    assert host.machine.next_deadline() == 0.5
    host.dispatch(e.TimePassed())
    assert host.answers[first].reason is RejectReason.DEADLINE
    assert host.machine.next_deadline() is None
    assert host.pending.keys() == {second}
    host.check()


def test_what_waits_for_its_gang_is_looked_at_again_whatever_its_pause_is() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.create("a", {"gpu": 8}, gang="g:2")
    host.allocate(host.start("a"), 4)
    host.dispatch(e.TermsChanged("a", 2 * GANG_TIMEOUT, 0))
    assert host.machine.next_deadline() == GANG_TIMEOUT
    host.dispatch(e.TermsChanged("a", 7.0, 0))
    assert host.machine.next_deadline() == 7.0
    host.check()


@pytest.mark.parametrize(("ends", "is_accepted"), [(4.9, True), (5.0, False)])
def test_what_comes_during_recovery_waits_from_its_end(ends: float, is_accepted: bool) -> None:
    """The scheduler grants nothing meanwhile: it would reject because of its own delay."""
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), recovering=True))
    host.create("holder", {"gpu": 16})
    host.create("a", {"gpu": 4}, wait=2.0)
    holder = host.start("holder", held={"gpu": 16})
    host.now = 0.5
    request = host.allocate(host.start("a"), 4)
    host.now = 3.0
    host.dispatch(e.RecoveryEnded())
    host.dispatch(e.TimePassed())
    assert (request in host.pending, host.machine.next_deadline()) == (True, 5.0)
    host.now = ends
    host.dispatch(e.TimePassed())
    host.end(holder)
    assert isinstance(host.answers[request], e.Accept) == is_accepted
    host.check()
