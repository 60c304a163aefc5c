"""A device that was chosen is lost or drained: what is said, who is placed anew, and who waits on."""

import pytest
from elastic_host import ElasticHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.placement import Choice, Displaced, Obstacle, PlacementRequested
from convgpu.core.residency.events import ElasticSet, ResumeAsked, StopOutcome, SuspendAsked
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import RejectReason
from convgpu.simulate.host import SimulatedHost

SIZES = {"g0": 16, "g1": 16, "g2": 16}
LOST, BACK = e.CapacityChanged("g0", 0, 16, is_lost=True), e.CapacityChanged("g0", 16, 16)
DRAINED = e.DeviceDrained("g0", drained=True)


def started(made: SimulatedHost, name: str, limit: int, choice: Choice | None = None) -> int:
    made.create(name, dict.fromkeys(SIZES, limit), choice=choice or Choice())
    return made.start(name)


def host() -> SimulatedHost:
    return SimulatedHost(Machine(SIZES, Fifo()))


def where(made: SimulatedHost, name: str) -> tuple[str, ...]:
    placement = made.machine.placement(name)
    made.machine.check_invariants(made.now)
    return placement.devices if placement else ()


def test_who_holds_nothing_leaves_a_lost_device_and_what_waits_there_is_rejected() -> None:
    made = host()
    holder = started(made, "holder", 12)
    made.allocate(holder, 12, "g0")
    for name, device in (("b", "g1"), ("c", "g2")):
        session = started(made, name, 14)
        made.allocate(session, 14, device)
    waiter = started(made, "waiter", 8)
    waits = made.allocate(waiter, 8, "g0")
    assert (where(made, "waiter"), waits in made.pending) == (("g0",), True)
    made.dispatch(LOST)
    assert made.displaced == [Displaced("holder", "g0", Obstacle.LOST), Displaced("waiter", "g0", Obstacle.LOST)]
    assert made.answers[waits] == e.Reject(waiter, waits, RejectReason.DISPLACED)
    assert (where(made, "holder"), where(made, "waiter")) == (("g0",), ())
    later = made.allocate(waiter, 1, "g0")  # its process lives, and its driver knows no other device
    assert made.answers[later] == e.Reject(waiter, later, RejectReason.DISPLACED)
    assert made.start("waiter")
    assert where(made, "waiter") == ("g1",)
    made.end(waiter)
    assert where(made, "waiter") == ("g1",)


def looked_at() -> tuple[SimulatedHost, int, int]:
    """A container that waits for g0, and is charged there: its allocation is being looked at."""
    made = host()
    made.looks_at_once = False
    made.allocate(started(made, "holder", 12), 12, "g0")
    for name, device in (("b", "g1"), ("c", "g2")):
        made.allocate(started(made, name, 14), 14, device)
    waiter = started(made, "waiter", 8)
    waits = made.allocate(waiter, 8, "g0")
    made.dispatch(e.UnleasedMemory("waiter", "g0", 3))
    assert (where(made, "waiter"), made.looks) == (("g0",), [e.AllocationLookedAt(waiter, waits)])
    return made, waiter, waits


def test_what_is_looked_at_on_a_lost_device_is_rejected_there() -> None:
    made, waiter, waits = looked_at()
    made.dispatch(LOST)
    assert made.answers[waits] == e.Reject(waiter, waits, RejectReason.DISPLACED)
    made.tell_looked()
    made.dispatch(e.UnleasedMemory("waiter", "g0", 0))
    assert where(made, "waiter") == ()


def test_who_is_looked_at_on_a_drained_device_waits_there_on() -> None:
    made, _, waits = looked_at()
    made.dispatch(e.UnleasedMemory("waiter", "g0", 0))
    made.dispatch(DRAINED)
    made.start("waiter")
    made.tell_looked()
    assert (where(made, "waiter"), waits in made.pending) == (("g0",), True)
    made.dispatch(e.DeviceDrained("g0", drained=False))
    made.finish("holder")
    assert isinstance(made.answers[waits], e.Accept)


def test_who_holds_memory_of_a_lost_device_stays_until_it_ends() -> None:
    made = host()
    session = started(made, "a", 8)
    made.allocate(session, 4, "g0")
    made.dispatch(LOST)
    assert where(made, "a") == ("g0",)
    made.end(session)
    assert where(made, "a") == ()
    made.dispatch(BACK)
    made.start("a")
    assert where(made, "a") == ("g0",)


def test_who_holds_memory_of_a_lost_device_does_not_wait_there_for_more() -> None:
    made = SimulatedHost(Machine({"g0": 16}, Fifo()))
    sessions = []
    for name in ("a", "b"):
        made.create(name, {"g0": 10}, choice=Choice())
        sessions.append(made.start(name))
        made.allocate(sessions[-1], 6, "g0")
    first, second = sessions
    made.allocate(second, 4, "g0")
    waits = made.allocate(first, 4, "g0")
    assert waits in made.pending
    made.dispatch(LOST)
    assert made.answers[waits] == e.Reject(first, waits, RejectReason.DISPLACED)
    assert made.machine.lease(first, "g0") == 6
    later = made.allocate(first, 1, "g0")
    assert made.answers[later] == e.Reject(first, later, RejectReason.DISPLACED)
    assert not made.pending
    made.machine.check_invariants(made.now)


@pytest.mark.parametrize("holds", [0, 2])
def test_what_was_granted_on_a_lost_device_and_waits_for_room_there_is_rejected(holds: int) -> None:
    """Elastic containers are granted more than the card has; the room that is lacking never came."""
    made = ElasticHost(Machine({"g0": 10}, Fifo()))
    made.set_pool("g0", 10, 1)
    sessions = []
    for name in ("a", "b"):
        made.create(name, {"g0": 8}, choice=Choice())
        made.dispatch(ElasticSet(name, {"g0": 0}))
        sessions.append(made.start(name))
        made.enable(sessions[-1])
    first, second = sessions
    made.allocate(first, 8, "g0")
    if holds:
        made.dispatch(e.UnleasedMemory("b", "g0", holds))
    waits = made.allocate(second, 6, "g0")
    assert waits in made.pending
    made.dispatch(e.CapacityChanged("g0", 0, 10, is_lost=True))
    assert made.answers[waits] == e.Reject(second, waits, RejectReason.DISPLACED)
    assert made.machine.lease(second, "g0") == 0
    assert where(made, "b") == (("g0",) if holds else ())
    assert where(made, "a") == ("g0",)


def test_a_program_that_ends_leaves_another_of_its_container_that_holds_nothing() -> None:
    made = host()
    holds, idle = started(made, "a", 8), made.start("a")
    made.allocate(holds, 4, "g0")
    made.dispatch(LOST)
    assert where(made, "a") == ("g0",)
    made.end(holds)
    assert where(made, "a") == ()
    made.start("a")
    assert where(made, "a") == ("g1",)
    made.end(idle)


def test_of_several_devices_one_that_is_lost_frees_all_when_nothing_is_held() -> None:
    made = host()
    started(made, "a", 8, Choice(2))
    assert where(made, "a") == ("g0", "g1")
    made.dispatch(LOST)
    assert where(made, "a") == ()
    made.start("a")
    assert where(made, "a") == ("g1", "g2")


def test_a_device_that_nobody_chose_is_waited_for() -> None:
    made = host()
    made.create("named", {"g0": 8})
    named = made.start("named")
    made.create("given", dict.fromkeys(SIZES, 8), choice=Choice(is_default=True))
    given = made.start("given", visible=("g0",))
    made.dispatch(LOST)
    waits = [made.allocate(session, 4, "g0") for session in (named, given)]
    assert [request in made.pending for request in waits] == [True, True]
    assert made.displaced == []
    made.dispatch(BACK)
    assert made.pending == {}


def test_a_drained_device_keeps_those_that_wait_and_is_left_by_the_next_process_of_others() -> None:
    made = host()
    holder = started(made, "holder", 16)
    made.allocate(holder, 16, "g0")
    for device in ("g1", "g2"):
        made.create(device, {device: 16})
        made.allocate(made.start(device), 16, device)
    waiter = started(made, "waiter", 4)
    waits = made.allocate(waiter, 4, "g0")
    made.dispatch(DRAINED)
    assert [report.container for report in made.displaced] == ["holder", "waiter"]
    assert (waits in made.pending, where(made, "waiter")) == (True, ("g0",))
    made.start("waiter")
    assert where(made, "waiter") == ("g0",)  # what waits there would wait in vain
    made.end(holder)
    made.dispatch(e.DeviceDrained("g0", drained=False))
    assert where(made, "waiter") == ("g0",)
    assert isinstance(made.answers[waits], e.Accept)


def test_the_next_process_leaves_a_drained_device_when_nothing_of_its_container_waits() -> None:
    made = host()
    first = started(made, "a", 8)
    made.dispatch(DRAINED)
    made.dispatch(DRAINED)
    assert made.displaced == [Displaced("a", "g0", Obstacle.DRAINED)]
    assert where(made, "a") == ("g0",)
    made.start("a")
    assert where(made, "a") == ("g1",)
    refused = made.allocate(first, 1, "g0")
    assert made.answers[refused] == e.Reject(first, refused, RejectReason.DISPLACED)


def test_where_no_other_can_be_had_a_drained_place_is_kept() -> None:
    made = host()
    started(made, "a", 8)
    for device in SIZES:
        made.dispatch(e.DeviceDrained(device, drained=True))
    made.dispatch(PlacementRequested("a"))
    assert where(made, "a") == ("g0",)


def test_slots_of_processes_that_stay_are_forgotten() -> None:
    """A waiting allocation elsewhere arms all slots; those of a freed place are not asked or disarmed any more."""
    made = host()
    idle = started(made, "a", 8)
    made.allocate(idle, 4, "g0")
    made.create("big", {"g1": 16})
    made.allocate(made.start("big"), 16, "g1")
    made.create("waits", {"g1": 16})
    waiter = made.start("waits")
    waits = made.allocate(waiter, 16, "g1")
    made.free(idle, 4, "g0")
    made.dispatch(LOST)
    assert where(made, "a") == ()
    made.finish("big")
    assert isinstance(made.answers[waits], e.Accept)
    made.end(idle)
    assert where(made, "a") == ()


def test_a_restart_while_a_device_is_lost() -> None:
    made = host()
    session = started(made, "a", 8)
    made.allocate(session, 4, "g0")
    started(made, "b", 8)
    machine = Machine(SIZES, Fifo(), recovering=True)
    made.restart(machine)
    made.dispatch(LOST)
    made.reconnect_previous(0)
    made.dispatch(e.RecoveryEnded())
    assert (where(made, "a"), where(made, "b")) == (("g0",), ())
    for number in list(made.processes):
        made.end(number)
    assert where(made, "a") == ()


def test_processes_whose_container_has_left_a_lost_device_go_on_when_they_are_resumed() -> None:
    """It has no account anywhere then, so that no device was looked at for its turn: they stood still."""
    made = ElasticHost(Machine({"gpu": 10}, Fifo()))
    made.create("c", {"gpu": 4}, choice=Choice())
    made.dispatch(ElasticSet("c", {"gpu": 0}))
    session = made.start("c")
    made.enable(session)
    made.dispatch(e.CapacityChanged("gpu", 0, 10, is_lost=True))
    assert made.machine.placement("c") is None
    made.dispatch(SuspendAsked("c"))
    made.answer_stop(session, StopOutcome.DRAINED, waiting=1)
    made.dispatch(ResumeAsked("c"))
    assert made.gates[session].is_open
    made.machine.check_invariants(made.now)


def test_who_may_have_left_memory_keeps_its_place_until_that_is_known() -> None:
    """Placed anew at once, it had its limit once more, and nobody was charged with what stayed."""
    made = host()
    first = started(made, "a", 8)
    made.allocate(first, 8, "g0")
    made.end(first, settled=False)
    assert where(made, "a") == ("g0",)
    made.dispatch(e.MayBeKept("a", "g0", 8))
    made.settle(first)
    assert where(made, "a") == ("g0",)
    made.dispatch(e.UnleasedMemory("a", "g0", 6))
    made.dispatch(e.MayBeKept("a", "g0", 0))
    assert where(made, "a") == ("g0",)
    made.dispatch(e.UnleasedMemory("a", "g0", 0))
    assert where(made, "a") == ()


@pytest.mark.parametrize("last", ["settled", "kept"])
def test_its_place_goes_with_the_last_of_what_may_be_left(last: str) -> None:
    made = host()
    first = started(made, "a", 8)
    made.allocate(first, 8, "g0")
    made.end(first, settled=False)
    made.dispatch(e.MayBeKept("a", "g0", 8))
    made.dispatch(e.ContainerEnded("a"))
    for what in ("kept", "settled") if last == "settled" else ("settled", "kept"):
        assert where(made, "a") == ("g0",)
        made.settle(first) if what == "settled" else made.dispatch(e.MayBeKept("a", "g0", 0))
    assert where(made, "a") == ()


@pytest.mark.parametrize("lost_first", [True, False])
def test_who_dies_with_a_lost_device_is_placed_elsewhere_at_once(lost_first: bool) -> None:
    """It may hang in its end there, and nothing that it had is left."""
    made = host()
    first = started(made, "a", 8)
    made.allocate(first, 8, "g0")
    if lost_first:
        made.dispatch(LOST)
    made.end(first, settled=False)
    made.dispatch(e.MayBeKept("a", "g0", 8))
    if not lost_first:
        made.dispatch(LOST)
    made.start("a")
    assert where(made, "a") == ("g1",)


def test_who_has_ended_is_not_reported_for_what_it_may_have_left() -> None:
    made = host()
    first = started(made, "a", 8)
    made.allocate(first, 8, "g0")
    made.end(first, settled=False)
    made.dispatch(e.ContainerEnded("a"))
    made.dispatch(DRAINED)
    assert made.displaced == []
    made.settle(first)
    assert where(made, "a") == ()


def test_who_is_removed_while_it_settles_leaves_nothing() -> None:
    made = host()
    first = started(made, "a", 8, Choice(2))
    made.allocate(first, 8, "g1")
    made.end(first, settled=False)
    made.dispatch(e.MayBeKept("a", "g1", 8))
    assert (made.machine.is_leaving("a"), where(made, "a")) == (True, ("g0", "g1"))
    made.dispatch(e.ContainerRemoved("a"))
    made.settle(first)
    made.dispatch(e.MayBeKept("a", "g1", 0))
    second = started(made, "a", 8)
    made.allocate(second, 8, "g0")
    assert not made.machine.is_leaving("a")
    made.end(second)
    assert where(made, "a") == ()
