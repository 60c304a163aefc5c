"""An interrupted program takes its allocation back: it is rejected, and whoever was behind it is served."""

from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import EventKind, RejectReason


def rejections(host: CheckedHost, event: e.Event) -> list[e.Reject]:
    step = host.machine.handle(event, host.now)
    assert step.needs is None
    assert [
        entry.reason for entry in step.effects if isinstance(entry, e.HistoryEntry) if entry.kind == EventKind.REJECTED
    ]
    return [effect for effect in step.effects if isinstance(effect, e.Reject)]


def test_a_paused_allocation_is_rejected_at_once() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.create("a", {"gpu": 16})
    host.create("b", {"gpu": 16})
    host.allocate(host.start("a"), 16)
    b = host.start("b")
    waiting = host.allocate(b, 8)
    assert rejections(host, e.AllocationWithdrawn(b, waiting)) == [e.Reject(b, waiting, RejectReason.INTERRUPTED)]
    assert host.machine.waiting == []


def test_what_was_answered_or_belongs_to_another_stays() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.create("a", {"gpu": 16})
    host.create("b", {"gpu": 16})
    a, b = host.start("a"), host.start("b")
    answered = host.allocate(a, 16)
    waiting = host.allocate(b, 8)
    for session, request in ((a, answered), (a, waiting), (b, 999), (999, waiting)):
        assert host.machine.handle(e.AllocationWithdrawn(session, request), host.now).effects == ()
    assert [row.request for row in host.machine.waiting] == [waiting]


def test_what_was_accepted_and_is_not_used_serves_who_waits() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.create("a", {"gpu": 12})
    host.create("b", {"gpu": 8})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 12)
    host.allocate(b, 8)
    for session in (999, a):
        step = host.machine.handle(e.AllocationReturned(session, "gpu", 4), host.now)
        while step.needs is not None:
            taken = tuple((slot, 0) for slot in step.needs.slots)
            step = host.machine.handle(e.HeadroomTaken(taken), host.now)
    assert (host.machine.lease(a, "gpu"), host.machine.lease(b, "gpu")) == (8, 8)
    assert host.machine.waiting == []
    host.machine.check_invariants(host.now)
