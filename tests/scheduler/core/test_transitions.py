"""Each event has its own transition."""

from typing import get_args

import pytest

from convgpu.core.events import Event
from convgpu.core.machine import Machine
from convgpu.core.residency.events import ResidencyEvent
from convgpu.core.transitions import Transitions
from convgpu.policies.memory import Fifo


def test_every_event_has_a_transition_of_its_own() -> None:
    registered = Transitions.__dict__["apply"].dispatcher.registry
    assert registered.keys() - {object} == set(get_args(Event)) - set(get_args(ResidencyEvent))
    assert len(set(registered.values())) == len(registered)


def test_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="not an event"):
        Machine({"gpu": 1}, Fifo()).handle(object(), 0.0)
