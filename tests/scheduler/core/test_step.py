"""The step says which event has to come next, and the machine takes no other."""

import pytest

from convgpu.core import events as e
from convgpu.core.errors import InvariantBrokenError
from convgpu.core.machine import Machine
from convgpu.core.step import Step, StepBuilder
from convgpu.policies.memory import Fifo


def waiting_for_an_answer() -> Machine:
    """Return one whose first container was leased more than it asked for; the second asks for more than is free."""
    machine = Machine({"gpu": 16}, Fifo())
    for session, name in enumerate("ab", 1):
        machine.handle(e.ContainerCreated(name, {"gpu": 10}), 0.0)
        machine.handle(e.SessionStarted(session, name, {}), 0.0)
    machine.handle(e.AllocationRequested(1, 1, "gpu", 4), 0.0)
    assert machine.handle(e.AllocationRequested(2, 2, "gpu", 8), 0.0) == Step((), e.TakeHeadroom(((1, "gpu"),)))
    return machine


def test_the_answer_may_be_followed_by_any_event() -> None:
    machine = waiting_for_an_answer()
    step = machine.handle(e.HeadroomTaken((((1, "gpu"), 6),)), 0.0)
    assert step.needs is None
    assert e.Accept(2, 2, 8, 0) in step.effects
    machine.handle(e.TimePassed(), 1.0)


@pytest.mark.parametrize(
    "event", [e.TimePassed(), e.SessionEnded(1, {}), e.HeadroomTaken(()), e.HeadroomTaken((((2, "gpu"), 1),))]
)
def test_nothing_but_the_answer_may_follow_a_question(event: e.Event) -> None:
    machine = waiting_for_an_answer()
    with pytest.raises(InvariantBrokenError, match="not the answer"):
        machine.handle(event, 0.0)


def test_no_answer_without_a_question() -> None:
    with pytest.raises(InvariantBrokenError, match="not the answer"):
        Machine({"gpu": 16}, Fifo()).handle(e.HeadroomTaken(()), 0.0)


def test_a_step_has_one_question_and_nothing_after_it() -> None:
    step = StepBuilder()
    step.need(e.TakeHeadroom(()))
    with pytest.raises(InvariantBrokenError):
        step.need(e.TakeHeadroom(()))
    with pytest.raises(InvariantBrokenError):
        step.add(e.Lease(1, "gpu", 1))
    assert step.build() == Step((), e.TakeHeadroom(()))
    assert step.build() == Step(())
