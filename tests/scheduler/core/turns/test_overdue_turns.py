"""What time alone brings: a container becomes overdue while nothing happens on its devices, and the scheduler wakes."""

from elastic_host import ElasticHost
from one_card import Card

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import Fifo

OVERDUE = 240.0  # four starvation timeouts


def test_a_container_of_lower_priority_takes_turns_with_one_that_never_idles_once_it_is_overdue() -> None:
    """It waited for any other event there, for ever beside a program that works all the while."""
    card = Card()
    a, b = card.start("a", 10, priority=1), card.start("b", 10)
    card.allocate(a, 8)
    assert card.allocate(b, 8) == []
    card.now = 1.0
    assert card.send(r.Busy("a")) == []
    assert card.machine.next_deadline() == OVERDUE
    card.now = OVERDUE
    assert card.send(e.TimePassed()) == [r.Stop(a, 1, 2.0)]


def test_an_overdue_container_passes_a_younger_one_that_it_could_have_delayed() -> None:
    """That it fits was noticed at the next event there."""
    card = Card(switch_cost=0.0)
    sessions = {name: card.start(name, limit) for name, limit in {"a": 6, "b": 2, "old": 2, "w": 7}.items()}
    card.allocate(sessions["a"], 6)
    card.allocate(sessions["b"], 2)
    assert card.allocate(sessions["w"], 7) == []
    card.now = OVERDUE + 10
    card.send(e.TimePassed())
    assert card.allocate(sessions["old"], 2) == []  # fits, and could delay w, which is overdue
    assert card.machine.next_deadline() == 2 * OVERDUE + 10
    card.now = 2 * OVERDUE + 10
    assert card.send(e.TimePassed()) == [e.Accept(sessions["old"], card.requests, 2, 0)]
    assert card.machine.next_deadline() is None


def test_each_that_waits_wakes_the_scheduler_once() -> None:
    card = Card(pool=40, switch_cost=0.0)
    a = card.start("a", 10)
    card.allocate(a, 8)
    for number in range(3):
        card.now = number / 10
        assert card.allocate(card.start(f"w{number}", 10), 9) == []
    woken = []
    while (deadline := card.machine.next_deadline()) is not None:
        card.now = deadline
        woken.append(deadline)
        assert card.send(e.TimePassed()) == []
    assert woken == [OVERDUE, 0.1 + OVERDUE, 0.2 + OVERDUE]


def test_time_that_wakes_nobody_breaks_no_invariant() -> None:
    """What leaves with a container that did not stop was compared with what leaves once it may be asked again."""
    host = ElasticHost(Machine({"gpu": 10}, Fifo(), starvation_timeout=0.0))
    host.set_pool("gpu", 10, 1)
    sessions = []
    for name, limit, size in (("k", 5, 5), ("a", 10, 4)):
        host.create_elastic(name, {"gpu": limit}, 0)
        sessions.append(host.start(name))
        host.enable(sessions[-1])
        host.allocate(sessions[-1], size)
    a = sessions[-1]
    request = host.allocate(a, 3)  # waits for its turn, and is overdue
    host.check()
    host.dispatch(e.CapacityChanged("gpu", 1, 10))
    host.dispatch(e.AllocationWithdrawn(a, request))
    host.allocate(a, 3)  # waits for memory, so that what it has may leave
    host.answer_stop(a, r.StopOutcome.BUSY)
    host.check()
    assert host.machine.next_deadline() is None
    host.now = 6.0
    host.check()
