"""The reason why each allocation waits."""

from dataclasses import replace

from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.allocation.wait_reasons import Wait
from convgpu.core.machine import Machine
from convgpu.policies.memory import BestFit, Fifo
from convgpu.protocol.event_kinds import WaitReason


def test_memory_names_the_largest_holders_first() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    for name, size in (("a", 6), ("b", 8), ("c", 2), ("d", 12)):
        host.create(name, {"gpu": size})
    for name, size in (("a", 6), ("b", 8), ("c", 2)):
        host.allocate(host.start(name), size)
    d = host.start("d")
    first, second = host.allocate(d, 12), host.allocate(d, 3)
    assert host.machine.explain(0.0) == {
        first: Wait(WaitReason.MEMORY, 0, ("b", "a"), missing=12),
        second: Wait(WaitReason.MEMORY, 1, ("b",), missing=3),
    }


def test_safety_is_the_reason_when_it_fits_but_not_every_container_could_end() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.create("a", {"gpu": 12})
    host.create("b", {"gpu": 12})
    host.allocate(host.start("a"), 8)
    waiting = host.allocate(host.start("b"), 6)
    assert host.machine.explain(0.0) == {waiting: Wait(WaitReason.SAFETY, 0, ("a",), free=8, missing=6)}


def test_turn_is_the_reason_behind_an_overdue_allocation() -> None:
    host = CheckedHost(Machine({"gpu": 16}, BestFit(), starvation_timeout=10.0))
    host.create("holder", {"gpu": 8})
    host.create("big", {"gpu": 16})
    host.create("small", {"gpu": 4}, priority=4)
    host.allocate(host.start("holder"), 8)
    big = host.allocate(host.start("big"), 16)
    host.now = 10.0
    small = host.allocate(host.start("small"), 4)
    assert host.machine.explain(host.now) == {
        big: Wait(WaitReason.MEMORY, 0, ("holder",), free=8, missing=16),
        small: Wait(WaitReason.TURN, 1, ("big",), free=8, missing=4),
    }


def test_drained_device_and_recovery() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), recovering=True))
    host.create("a", {"gpu": 8})
    waiting = host.allocate(host.start("a"), 8)
    assert host.machine.explain(0.0) == {waiting: Wait(WaitReason.RECOVERING, 0, (), free=16, missing=8)}
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    host.dispatch(e.RecoveryEnded())
    assert host.machine.explain(0.0) == {waiting: Wait(WaitReason.DRAINED, 0, (), free=16, missing=8)}
    host.dispatch(e.DeviceDrained("gpu", drained=False))
    assert waiting in host.answers


def test_policy_and_priority_decide_how_many_are_ahead() -> None:
    host = CheckedHost(Machine({"gpu": 16}, BestFit()))
    for name, priority in (("holder", 0), ("small", 0), ("large", 0), ("urgent", 1)):
        host.create(name, {"gpu": 16}, priority=priority)
    host.allocate(host.start("holder"), 16)
    requests = [host.allocate(host.start(name), size) for name, size in (("small", 2), ("large", 12), ("urgent", 1))]
    waits = host.machine.explain(0.0)
    assert [waits[request].ahead for request in requests] == [2, 1, 0]


def test_one_allocation_is_explained_as_all_are_without_its_place() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.create("a", {"gpu": 16})
    host.create("b", {"gpu": 16})
    host.allocate(host.start("a"), 12)
    b = host.start("b")
    first, second = host.allocate(b, 8), host.allocate(b, 9)
    waits = host.machine.explain(0.0)
    assert host.machine.explain_one("b", first, 0.0) == waits[first]
    assert host.machine.explain_one("b", second, 0.0) == replace(waits[second], ahead=0)
    assert host.machine.explain_one("a", first, 0.0) is None
    assert host.machine.explain_one("gone", first, 0.0) is None


def test_what_the_grant_lacks_is_missing_not_the_request() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    host.create("a", {"gpu": 8})
    host.create("b", {"gpu": 12})
    host.allocate(host.start("b"), 4)
    host.allocate(host.start("a"), 8)
    b = host.start("b")
    [waiting] = [request for request in [host.allocate(b, 8)] if request not in host.answers]
    idle = host.machine.accounts("b")["gpu"].grant - 4
    assert host.machine.explain(0.0)[waiting].missing == 8 - idle
