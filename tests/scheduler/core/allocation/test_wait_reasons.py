"""Why does it wait?"""

from world import World

from convgpu.core import events as e
from convgpu.core.allocation.wait_reasons import Wait, WaitReason
from convgpu.core.machine import Machine
from convgpu.policies.memory import BestFit, Fifo


def test_not_enough_is_free_and_who_has_it_most_first() -> None:
    w = World(Machine({"gpu": 16}, Fifo()))
    for name, size in (("a", 6), ("b", 8), ("c", 2), ("d", 12)):
        w.create(name, {"gpu": size})
    for name, size in (("a", 6), ("b", 8), ("c", 2)):
        w.allocate(w.start(name), size)
    d = w.start("d")
    first, second = w.allocate(d, 12), w.allocate(d, 3)
    assert w.machine.explain(0.0) == {
        first: Wait(WaitReason.MEMORY, 0, ("b", "a")),
        second: Wait(WaitReason.MEMORY, 1, ("b",)),
    }


def test_it_fits_but_then_not_everybody_could_end() -> None:
    w = World(Machine({"gpu": 16}, Fifo()))
    w.create("a", {"gpu": 12})
    w.create("b", {"gpu": 12})
    w.allocate(w.start("a"), 8)
    waiting = w.allocate(w.start("b"), 6)
    assert w.machine.explain(0.0) == {waiting: Wait(WaitReason.SAFETY, 0, ("a",))}


def test_an_overdue_one_is_before_it() -> None:
    w = World(Machine({"gpu": 16}, BestFit(), starvation_timeout=10.0))
    w.create("holder", {"gpu": 8})
    w.create("big", {"gpu": 16})
    w.create("small", {"gpu": 4}, priority=9)
    w.allocate(w.start("holder"), 8)
    big = w.allocate(w.start("big"), 16)
    w.now = 10.0
    small = w.allocate(w.start("small"), 4)
    assert w.machine.explain(w.now) == {
        big: Wait(WaitReason.MEMORY, 0, ("holder",)),
        small: Wait(WaitReason.TURN, 1, ("big",)),
    }


def test_the_device_is_drained_or_the_scheduler_recovers() -> None:
    w = World(Machine({"gpu": 16}, Fifo(), recovering=True))
    w.create("a", {"gpu": 8})
    waiting = w.allocate(w.start("a"), 8)
    assert w.machine.explain(0.0) == {waiting: Wait(WaitReason.RECOVERING, 0, ())}
    w.dispatch(e.DeviceDrained("gpu", drained=True))
    w.dispatch(e.RecoveryEnded())
    assert w.machine.explain(0.0) == {waiting: Wait(WaitReason.DRAINED, 0, ())}
    w.dispatch(e.DeviceDrained("gpu", drained=False))
    assert waiting in w.answers


def test_policy_and_priority_say_who_is_ahead() -> None:
    w = World(Machine({"gpu": 16}, BestFit()))
    for name, priority in (("holder", 0), ("small", 0), ("large", 0), ("urgent", 1)):
        w.create(name, {"gpu": 16}, priority=priority)
    w.allocate(w.start("holder"), 16)
    requests = [w.allocate(w.start(name), size) for name, size in (("small", 2), ("large", 12), ("urgent", 1))]
    waits = w.machine.explain(0.0)
    assert [waits[request].ahead for request in requests] == [2, 1, 0]
