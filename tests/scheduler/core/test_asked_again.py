"""What was rejected for a charge that is gone by now is asked for once more, and has its place again."""

from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import RejectReason


def waiting_host() -> tuple[CheckedHost, int, int]:
    """A device that `a` holds; `b` waits for 8 bytes of it since second 2."""
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    for name in "abc":
        host.create(name, {"gpu": 10})
    host.allocate(host.start("a"), 10)
    b = host.start("b")
    host.now = 2.0
    return host, b, host.allocate(b, 8)


def test_a_rejection_says_when_it_began_to_wait_if_only_a_charge_is_in_its_way() -> None:
    host, b, waiting = waiting_host()
    host.now = 3.0
    host.dispatch(e.UnleasedMemory("b", "gpu", 3))
    answer = host.answers[waiting]
    assert isinstance(answer, e.Reject)
    assert answer.arrival is not None
    assert (answer.reason, answer.arrival.since) == (RejectReason.LIMIT, 2.0)
    too_much = host.allocate(b, 11)  # without the charge, too
    assert host.answers[too_much] == e.Reject(b, too_much, RejectReason.LIMIT)


def test_it_is_served_before_who_came_after_it() -> None:
    host, _, waiting = waiting_host()
    c = host.start("c")
    host.now = 2.5
    later = host.allocate(c, 9)
    host.dispatch(e.UnleasedMemory("b", "gpu", 3))
    answer = host.answers[waiting]
    assert isinstance(answer, e.Reject)
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.now = 4.0
    again = host.ask_again(waiting)
    assert [(row.request, row.since) for row in host.machine.waiting] == [(again, 2.0), (later, 2.5)]
    host.finish("a")
    assert isinstance(host.answers[again], e.Accept)
    assert later not in host.answers
    host.check()
