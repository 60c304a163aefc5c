"""Each event has its own transition."""

from typing import get_args

import pytest

from convgpu.core.events import Event
from convgpu.core.machine import Machine
from convgpu.core.transitions import Transitions
from convgpu.core.turns.transitions import ResidencyTransitions
from convgpu.policies.memory import Fifo


def test_every_event_has_a_transition_of_its_own() -> None:
    registered = [owner.__dict__["apply"].dispatcher.registry for owner in (Transitions, ResidencyTransitions)]
    events = [event for registry in registered for event in registry if event is not object]
    assert sorted(events, key=str) == sorted(get_args(Event), key=str)
    assert all(len(set(registry.values())) == len(registry) for registry in registered)


def test_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="not an event"):
        Machine({"gpu": 1}, Fifo()).handle(object(), 0.0)
