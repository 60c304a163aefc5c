"""What exceeds a limit only with what its container is charged with is looked at, and keeps its place."""

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.allocation.terms import GANG_TIMEOUT
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import EventKind, RejectReason


def waiting_host(**terms: float) -> tuple[CheckedHost, int, int]:
    """A device that `a` holds; `b` waits for 8 bytes of it since second 2, and is charged with 3 of 10 in second 3."""
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.looks_at_once = False
    for name in "abc":
        host.create(name, {"gpu": 10}, **(terms if name == "b" else {}))
    host.allocate(host.start("a"), 10)
    b = host.start("b")
    host.now = 2.0
    waiting = host.allocate(b, 8)
    host.now = 3.0
    host.dispatch(e.UnleasedMemory("b", "gpu", 3))
    assert host.looks == [e.AllocationLookedAt(b, waiting)]
    return host, b, waiting


def kinds(host: CheckedHost, request: int) -> list[str]:
    return [str(entry.kind) for entry in host.history if entry.request == request]


def test_it_is_rejected_for_what_is_there() -> None:
    host, b, waiting = waiting_host()
    host.tell_looked()
    assert host.answers[waiting] == e.Reject(b, waiting, RejectReason.LIMIT)
    assert kinds(host, waiting) == ["paused", "rejected"]
    host.check()


def test_without_that_it_waits_where_it_did_as_if_nothing_had_been() -> None:
    host, _, waiting = waiting_host()
    later = host.allocate(host.start("c"), 9)
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.now = 4.0
    host.tell_looked()
    assert [(row.request, row.since) for row in host.machine.waiting] == [(waiting, 2.0), (later, 3.0)]
    host.finish("a")
    assert isinstance(host.answers[waiting], e.Accept)
    assert later not in host.answers
    assert kinds(host, waiting) == ["paused", "granted"]
    [granted] = [one for one in host.history if one.kind is EventKind.GRANTED]
    assert granted.waited == 2.0
    host.check()


def test_it_is_looked_at_for_each_charge() -> None:
    host, b, waiting = waiting_host()
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.tell_looked()
    host.dispatch(e.UnleasedMemory("b", "gpu", 3))
    assert host.looks == [e.AllocationLookedAt(b, waiting)]
    host.tell_looked()
    assert isinstance(host.answers[waiting], e.Reject)


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_a_new_one_is_rejected_at_once_if_it_was_looked_at(is_looked_at: bool) -> None:
    host, b, _ = waiting_host()
    host.pending[99] = e.AllocationRequested(b, 99, "gpu", 8, is_looked_at=is_looked_at)
    host.dispatch(host.pending[99])
    assert (99 in host.answers) is is_looked_at
    assert len(host.looks) == (1 if is_looked_at else 2)


def test_what_exceeds_the_limit_without_the_charge_is_not_looked_at() -> None:
    host, b, _ = waiting_host()
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.tell_looked()
    too_much = host.allocate(b, 11)
    assert host.answers[too_much] == e.Reject(b, too_much, RejectReason.LIMIT)
    host.finish("a")  # what `b` waited for is leased to it now
    host.dispatch(e.UnleasedMemory("b", "gpu", 1))
    more = host.allocate(b, 3)
    assert host.answers[more] == e.Reject(b, more, RejectReason.LIMIT)
    assert host.looks == []


def test_a_program_that_is_interrupted_meanwhile_is_rejected_once() -> None:
    host, b, waiting = waiting_host()
    host.dispatch(e.AllocationWithdrawn(b, waiting))
    assert host.answers[waiting] == e.Reject(b, waiting, RejectReason.INTERRUPTED)
    host.tell_looked()
    assert kinds(host, waiting) == ["paused", "rejected"]
    host.check()


def test_who_ends_or_is_unknown_is_decided_on_no_more() -> None:
    host, b, waiting = waiting_host()
    host.end(b)
    host.tell_looked()
    host.dispatch(e.AllocationLookedAt(99, 99))
    assert waiting not in host.answers
    host.check()


def test_who_connects_again_meanwhile_has_its_place() -> None:
    host, b, _ = waiting_host()
    again = host.reconnect(b, {})
    host.tell_looked()
    host.now = 4.0
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    sent = host.allocate(again, 8)
    assert [(row.request, row.since) for row in host.machine.waiting] == [(sent, 2.0)]


def test_what_is_lost_meanwhile_is_given_up() -> None:
    host, _, waiting = waiting_host()
    host.dispatch(e.CapacityChanged("gpu", 0, is_lost=True))
    host.tell_looked()
    assert isinstance(host.answers[waiting], e.Reject)
    host.check()


def test_its_wait_ends_when_it_was_looked_at() -> None:
    host, b, waiting = waiting_host(wait=5.0)
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.now = 8.0
    host.dispatch(e.TimePassed())
    assert waiting not in host.answers
    host.tell_looked()
    host.dispatch(e.TimePassed())
    assert host.answers[waiting] == e.Reject(b, waiting, RejectReason.DEADLINE)


def test_its_wait_is_what_it_has_become_meanwhile() -> None:
    host, b, waiting = waiting_host()
    host.dispatch(e.TermsChanged("b", 5.0, 0))
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.tell_looked()
    assert host.machine.next_deadline() == 7.0
    host.now = 7.0
    host.dispatch(e.TimePassed())
    assert host.answers[waiting] == e.Reject(b, waiting, RejectReason.DEADLINE)


def test_terms_that_change_meanwhile_are_its_own() -> None:
    host, _, waiting = waiting_host()
    later = host.allocate(host.start("c"), 9)
    host.dispatch(e.TermsChanged("b", None, -5))
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.tell_looked()
    priorities = {row.request: row.priority for row in host.machine.waiting}
    assert priorities == {waiting: -5, later: 0}
    host.finish("a")
    assert later in host.answers


def test_one_that_waits_for_a_higher_limit_is_looked_at_once() -> None:
    """It was without end: it does not exceed the limit that is to come."""
    host = CheckedHost(Machine({"gpu": 20}, Fifo()))
    host.looks_at_once = False
    host.create("a", {"gpu": 16})
    host.create("b", {"gpu": 10})
    host.allocate(host.start("a"), 8)
    b = host.start("b")
    host.allocate(b, 4)
    host.dispatch(e.UnleasedMemory("b", "gpu", 3))
    host.dispatch(e.LimitsChanged("b", {"gpu": 16}))
    waiting = host.allocate(b, 5)
    host.tell_looked()
    assert host.looks == []
    assert host.answers[waiting] == e.Reject(b, waiting, RejectReason.LIMIT)


def test_what_another_of_its_programs_frees_afterwards_is_told() -> None:
    """On a drained device nothing else can serve it, and while it was looked at nothing waited there."""
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.looks_at_once = False
    host.create("a", {"gpu": 6})
    host.create("b", {"gpu": 12})
    host.allocate(host.start("a"), 6)
    first, second = host.start("b"), host.start("b")
    host.allocate(first, 2)
    host.allocate(second, 6)
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    waiting = host.allocate(second, 2)
    host.dispatch(e.UnleasedMemory("b", "gpu", 3))
    host.dispatch(e.UnleasedMemory("b", "gpu", 0))
    host.tell_looked()
    assert waiting not in host.answers
    host.free(first, 2)
    assert isinstance(host.answers[waiting], e.Accept)


def test_a_gang_whose_member_is_looked_at_has_come() -> None:
    host = CheckedHost(Machine({"gpu": 10}, Fifo()))
    host.looks_at_once = False
    host.create("other", {"gpu": 10})
    host.allocate(host.start("other"), 10)
    for name in "ab":
        host.create(name, {"gpu": 4}, gang="g:2")
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 3)
    waiting = host.allocate(b, 3)
    host.dispatch(e.UnleasedMemory("a", "gpu", 2))
    assert len(host.looks) == 1
    host.now = GANG_TIMEOUT + 1
    host.dispatch(e.TimePassed())
    assert waiting not in host.answers
    host.dispatch(e.UnleasedMemory("a", "gpu", 0))
    host.tell_looked()
    host.finish("other")
    assert isinstance(host.answers[waiting], e.Accept)
