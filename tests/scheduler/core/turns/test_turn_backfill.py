"""Backfill among turns: who provably delays no overdue one goes on behind it (docs/policies.md)."""

import pytest
from elastic_host import ElasticHost
from one_card import Card

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import Fifo

OVERDUE = 240.0  # four starvation timeouts


def make_card(running: dict[str, int], waits: int) -> tuple[Card, dict[str, int], int]:
    """Return a card on which some run, and `w` waits for so much and is overdue; the sessions; its request."""
    card = Card(switch_cost=0.0)
    sessions = {name: card.start(name, size) for name, size in running.items()}
    for name, size in running.items():
        card.allocate(sessions[name], size)
    sessions["w"] = card.start("w", waits)
    assert card.allocate(sessions["w"], waits) == []
    request = card.requests
    card.now = OVERDUE
    card.send(e.TimePassed())
    return card, sessions, request


def test_who_leaves_room_for_an_overdue_turn_whoever_ends_goes_on_behind_it() -> None:
    card, sessions, request = make_card({"a": 6, "b": 3}, 5)  # lacks 4 of 10, of which 1 is free: a's end leaves 2
    c, d = card.start("c", 1), card.start("d", 1)
    assert card.allocate(c, 1) == [e.Accept(c, 4, 1, 0)]
    assert card.allocate(d, 1) == []  # nothing is free
    assert card.send(e.SessionEnded(sessions["b"], {})) == [
        e.Accept(d, 5, 1, 3)
    ]  # of the 3 that w lacks still, a has 6
    assert card.send(e.SessionEnded(sessions["a"], {})) == [e.Accept(sessions["w"], request, 5, 9)]


@pytest.mark.parametrize(("size", "goes_on"), [(1, True), (2, False)])
def test_who_could_delay_an_overdue_turn_waits_behind_it_though_it_fits(size: int, goes_on: bool) -> None:
    card, sessions, request = make_card({"a": 6, "b": 2}, 7)  # lacks 5 of 10, of which 2 are free: a's end leaves 1
    c = card.start("c", size)
    assert card.allocate(c, size) == ([e.Accept(c, 4, size, 0)] if goes_on else [])
    assert card.send(e.SessionEnded(sessions["a"], {})) == [e.Accept(sessions["w"], request, 7, 6)]


def test_ends_that_are_in_vain_together_are_regarded() -> None:
    card, sessions, request = make_card({"a": 2, "b": 2, "c": 4}, 6)  # lacks 4: c, or a and b, leave nothing beside it
    d = card.start("d", 1)
    assert card.allocate(d, 1) == []
    assert card.send(e.SessionEnded(sessions["a"], {})) == []
    assert card.send(e.SessionEnded(sessions["b"], {})) == [e.Accept(sessions["w"], request, 6, 4)]


def make_host(switch_cost: float = 0.0, **limits: dict[str, int]) -> tuple[ElasticHost, list[int]]:
    """Return a host with two cards and containers with these limits, and the session of each."""
    host = ElasticHost(Machine({"g0": 10, "g1": 10}, Fifo(), switch_cost=switch_cost))
    for device in ("g0", "g1"):
        host.set_pool(device, 20, 1)
    for name, sizes in limits.items():
        host.create_elastic(name, sizes, 0)
        host.enable(host.start(name))
    return host, list(host.processes)


def test_what_an_overdue_turn_does_not_lack_may_be_taken() -> None:
    host, (a, w, b, c, d) = make_host(a={"g0": 8}, w={"g0": 8, "g1": 7}, b={"g1": 4}, c={"g1": 3}, d={"g0": 2})
    requests = [host.allocate(a, 8, "g0"), host.allocate(w, 7, "g1"), host.allocate(w, 8, "g0")]
    host.now = OVERDUE
    requests += [host.allocate(b, 4, "g1"), host.allocate(c, 3, "g1"), host.allocate(d, 2, "g0")]
    host.check()
    assert [request in host.answers for request in requests] == [True, True, False, False, True, True]


def test_who_comes_to_another_device_does_not_delay_an_overdue_turn_on_this_one() -> None:
    host, (a, w, b, c) = make_host(a={"g0": 6}, w={"g0": 8}, b={"g1": 9}, c={"g0": 3, "g1": 3})
    requests = [host.allocate(a, 6, "g0"), host.allocate(w, 8, "g0"), host.allocate(b, 9, "g1")]
    host.now = 200.0
    requests.append(host.allocate(c, 3, "g0"))  # w is not overdue yet
    requests.append(host.allocate(c, 3, "g1"))  # paused: what c has of g0 could go to w, and a's end leaves 2 beside it
    host.now = OVERDUE
    host.dispatch(e.TimePassed())
    host.end(b)
    host.check()
    assert [request in host.answers for request in requests] == [True, False, True, True, False]


def test_nobody_loses_a_turn_for_one_that_an_overdue_one_comes_before_on_another_device() -> None:
    host, (a, w, b, c) = make_host(0.05, a={"g1": 7}, w={"g1": 8}, b={"g0": 6}, c={"g0": 8, "g1": 3})
    host.dispatch(r.SwitchMeasured("g1", rate_out=0.01, rate_in=0.01))  # a has its turn for 300 seconds
    requests = [host.allocate(a, 7, "g1"), host.allocate(c, 3, "g1"), host.allocate(w, 8, "g1")]
    host.now = 239.0
    requests += [host.allocate(b, 6, "g0"), host.allocate(c, 8, "g0")]
    host.now = 242.0
    host.dispatch(e.TimePassed())
    host.check()
    assert [request in host.answers for request in requests] == [True, True, False, True, False]
    assert not any(gate.must_stop for gate in host.gates.values())


def test_of_what_is_fixed_nothing_leaves_when_its_container_pauses() -> None:
    card = Card(switch_cost=0.0)
    card.send(e.ContainerCreated("a", {"gpu": 8}))
    card.send(r.ElasticSet("a", {"gpu": 2}))
    card.send(e.SessionStarted(99, "a", {}))
    card.send(r.SessionAble(99, r.Mover.VMM))
    assert card.allocate(99, 6) == [e.Accept(99, 1, 6, 0)]
    w, c, d = card.start("w", 8), card.start("c", 1), card.start("d", 1)
    assert card.allocate(w, 8) == []
    card.now = OVERDUE
    card.send(e.TimePassed())
    assert card.allocate(c, 1) == []  # a's end leaves 2 beside w, and its pause none
    assert card.allocate(99, 2) == [r.Stop(99, 1, 2.0)]
    assert card.send(r.SessionStopped(99, 1, r.StopOutcome.DRAINED, fixed={"gpu": 2})) == [r.Evict(99, 1, "gpu", 4)]
    assert card.send(r.Evicted(99, "gpu", 4)) == [e.Accept(w, 2, 8, 0)]
    assert card.allocate(d, 1) == []
