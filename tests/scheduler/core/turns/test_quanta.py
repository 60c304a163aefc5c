"""How long a running container keeps its turn, and when the next one is due."""

import pytest
from one_card import Card

from convgpu.core import events as e
from convgpu.core.residency import events as r


def test_a_running_container_loses_its_turn_after_its_quantum() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    assert card.allocate(b, 8) == []
    assert card.machine.next_deadline() == 2.0  # the least quantum, because eight bytes are moved at once
    assert (card.due("a"), card.due("b")) == (None, 2.0)
    card.now = 2.0
    assert card.send(e.TimePassed()) == [r.Stop(a, 1, 2.0)]
    assert (card.due("a"), card.due("b")) == (None, None)  # the other is next, and has its turn
    assert card.drain(a, 1, waiting=1) == [r.Evict(a, 1, "gpu", 6)]
    assert card.send(r.Evicted(a, "gpu", 6)) == [e.Accept(b, 2, 8, 0)]
    assert card.machine.next_deadline() == 4.0


def test_a_container_that_fitted_when_it_started_keeps_its_turn_for_a_quantum() -> None:
    card = Card()
    card.now = 1000.0
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    card.now = 1001.0
    assert card.allocate(b, 8) == []
    assert (card.due("b"), card.machine.next_deadline()) == (1002.0, 1002.0)
    card.send(r.SessionAble(a, r.Mover.VMM))  # connected again: no quantum begins
    card.now = 1002.0
    assert card.send(e.TimePassed()) == [r.Stop(a, 1, 2.0)]


def test_who_is_next_is_due_when_enough_quanta_have_ended_and_nobody_behind_it() -> None:
    card = Card()
    a, c, d = (card.start(name, 10) for name in "acd")
    card.allocate(a, 5)
    card.now = 1.0
    b = card.start("b", 10)
    card.allocate(b, 4)
    assert card.allocate(c, 8) == []
    assert card.allocate(d, 8) == []
    assert (card.due("c"), card.due("d")) == (3.0, None)  # the quantum of b ends a second after that of a
    card.send(e.DeviceDrained("gpu", drained=True))
    assert card.due("c") is None


def test_without_a_switch_cost_no_running_container_loses_its_turn() -> None:
    card = Card(switch_cost=0.0)
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    assert card.allocate(b, 8) == []
    assert card.due("b") is None
    assert card.machine.next_deadline() == 240.0  # it is overdue
    card.now = 240.0
    assert card.send(e.TimePassed()) == []
    assert card.machine.next_deadline() is None


def test_measured_rates_and_drains_decide_how_long_a_quantum_is() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    card.send(r.SwitchMeasured("gpu", rate_out=4.0))
    card.send(r.SwitchMeasured("gpu", rate_in=8.0))
    card.allocate(a, 8)
    card.allocate(b, 8)
    assert card.machine.next_deadline() == pytest.approx((8 / 4 + 8 / 8 + 0.05) * 19)
    card.send(r.SuspendAsked("a"))
    card.send(r.SessionStopped(a, 1, r.StopOutcome.DRAINED, drain=1.0))
    card.send(r.SwitchMeasured("gpu", rate_out=8.0))  # counts for a quarter
    assert card.machine.rates("gpu") == (5.0, 8.0, 1.0)


def test_when_a_turn_is_due_follows_rates_and_priority() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    card.send(r.SwitchMeasured("gpu", rate_out=4.0, rate_in=8.0))
    card.allocate(a, 8)
    card.allocate(b, 8)
    assert card.due("b") == pytest.approx((8 / 4 + 8 / 8 + 0.05) * 19)
    card.send(r.SwitchMeasured("gpu", rate_out=8.0))
    assert card.due("b") == pytest.approx((8 / 5 + 8 / 8 + 0.05) * 19)
    card.send(e.TermsChanged("b", wait=None, priority=1))
    assert card.due("b") == pytest.approx(8 / 5 + 8 / 8 + 0.05)
