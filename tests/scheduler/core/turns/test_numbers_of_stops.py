"""A new scheduler numbers its stops anew; what the host had no room for is tried again."""

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import Fifo

ORDERS = r.Stop | r.Evict | r.Go


def machine(epoch: int) -> Machine:
    """Return one with a container that an administrator suspended before its process connected."""
    made = Machine({"gpu": 10}, Fifo())
    events = (
        r.PoolChanged("gpu", 11, 1, 1),
        e.ContainerCreated("a", {"gpu": 10}),
        r.ElasticSet("a", {"gpu": 0}, epoch),
        r.SuspendAsked("a"),
        e.SessionStarted(1, "a", {"gpu": 4}),
    )
    for event in events:
        send(made, event)
    return made


def send(made: Machine, event: e.Event) -> list[e.Effect]:
    step = made.handle(event, 0.0)
    orders = [effect for effect in step.effects if isinstance(effect, ORDERS)]
    if step.needs is not None:
        return orders + send(made, e.HeadroomTaken(tuple((slot, 0) for slot in step.needs.slots)))
    made.check_invariants(0.0)
    return orders


def test_the_state_of_a_process_is_not_the_answer_to_a_stop_of_a_new_scheduler() -> None:
    made = machine(epoch=1000)
    [stop] = send(made, r.SessionAble(1, r.Mover.VMM))
    assert isinstance(stop, r.Stop)
    assert stop.epoch > 1000
    state = r.SessionState(1, 1, open=False, out={"gpu": 1}, fixed={})
    assert send(made, state) == [r.Evict(1, stop.epoch, "gpu", 3)]


def test_what_the_host_had_no_room_for_leaves_when_it_has_more() -> None:
    made = machine(epoch=0)
    [stop] = send(made, r.SessionAble(1, r.Mover.VMM))
    assert isinstance(stop, r.Stop)
    assert send(made, r.SessionStopped(1, stop.epoch, r.StopOutcome.DRAINED)) == [r.Evict(1, stop.epoch, "gpu", 4)]
    assert send(made, r.Evicted(1, "gpu", 1, missing=3)) == []
    assert send(made, r.PoolChanged("gpu", 21, 1, 1)) == [r.Evict(1, stop.epoch, "gpu", 3)]


def test_what_the_host_had_no_room_for_leaves_at_once_if_it_has_had_more_since() -> None:
    """The pool grew while the porter refused, so that nothing else would have it tried again."""
    made = machine(epoch=0)
    [stop] = send(made, r.SessionAble(1, r.Mover.VMM))
    assert isinstance(stop, r.Stop)
    send(made, r.SessionStopped(1, stop.epoch, r.StopOutcome.DRAINED))
    assert send(made, r.PoolChanged("gpu", 21, 1, 1)) == []
    assert send(made, r.Evicted(1, "gpu", 1, missing=3)) == [r.Evict(1, stop.epoch, "gpu", 3)]
    assert send(made, r.Evicted(1, "gpu", 0, missing=3)) == []
