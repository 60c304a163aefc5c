"""Asks the Engine whether it is still at work with starts whose answers may be lost."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.authz.facts.starts import Start, UnansweredStarts
from convgpu.authz.ports import Document, EngineHolds, EnginePort, EngineUnreachable
from convgpu.protocol.engine_container import EngineState, is_running

# Seconds for an answer, and for all but the last that one judgement asks for.
_PATIENCE: Final = 1.0
# Starts that one judgement asks about.
_MOST: Final = 64
# Seconds between the two answers that say that one is over.
_APART: Final = 1.0


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds of a clock, and a wait for some; tests give others."""

    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep


def settle(
    starts: UnansweredStarts, engine: EnginePort, concerns: Callable[[Start], bool], user: str, seconds: Time
) -> None:
    """Forget the starts that the Engine says are over.

    It holds a container's lock while it starts it, and so tells nothing about it. Such a start, and one about which
    nobody could ask, counts on. Only the caller of this waits, for five seconds at most, so no lock may be held:
    neither the owners', for which all starts wait, nor one that answers need.

    A start that waits until another call has left the lock takes it twice, and somebody may be answered in between. So
    it is over if two answers, some time apart, say so.

    Args:
        starts: that have no answer.
        engine: is asked.
        concerns: tells which starts matter now. Others cost no time.
        user: whose starts are asked about first.
        seconds: that pass.
    """
    due = sorted((start for start in starts.overdue() if concerns(start)), key=lambda start: start.user != user)
    seem_over = _find_over(due[:_MOST], starts, engine, seconds)
    if seem_over:
        seconds.wait(_APART)
        starts.over(_find_over(seem_over, starts, engine, seconds))


def _find_over(due: Sequence[Start], starts: UnansweredStarts, engine: EnginePort, seconds: Time) -> list[Start]:
    """Return those that the Engine says are over; ask until it does not answer, or some time has passed."""
    latest, over = seconds.clock() + _PATIENCE, []
    for start in due:
        try:
            found = engine.container_within(start.container, _PATIENCE)
        except EngineHolds:
            starts.asked(start)
            break
        except EngineUnreachable:  # or it answers about this one with an error
            if seconds.clock() < latest:
                continue  # it is asked again at once when it is back
            starts.asked(start)
        else:
            if _runs(found):
                # It counts anyway. A restart may wait for the end of what runs, and hang then.
                starts.asked(start)
            else:
                over.append(start)
        if seconds.clock() >= latest:
            break
    return over


def _runs(found: Document | None) -> bool:
    state = {"Status": EngineState.DEAD} if found is None else found.get("State")
    return is_running(str(state.get("Status", "")) if isinstance(state, dict) else "")
