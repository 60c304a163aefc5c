"""The states of a container in the Engine's list, and which of them mean that it runs."""

from enum import StrEnum
from typing import Final


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
