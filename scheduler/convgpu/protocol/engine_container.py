"""A container as the Engine lists it, its states, and which of them mean that it runs."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """A container in the Engine; `labels` are those that are shown.

    A plain dataclass in a module of its own: rows of the database hold it, and `convgpu run` does without msgspec.
    """

    id: str
    name: str
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class EngineState(StrEnum):
    """`State` of a row of `GET /containers/json`."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"


_NOT_RUNNING: Final = frozenset({EngineState.CREATED, EngineState.EXITED, EngineState.DEAD, EngineState.REMOVING})

# Seconds that the Engine may take to start a container: from the mount of its volume, or from the permission to start
# it, to the state `running`.
MAX_START_TIME: Final = 10.0


def is_running(state: str) -> bool:
    """Tell whether a container in this state may have processes; a state that a newer Engine adds counts as running."""
    return state not in _NOT_RUNNING
