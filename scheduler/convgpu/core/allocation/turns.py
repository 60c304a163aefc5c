"""Age: when an allocation is overdue, and whose turn it is among those that are (docs/policies.md)."""

from collections.abc import Iterable
from math import isfinite
from typing import Final

from convgpu.core.allocation.admission import waits_for_holders
from convgpu.core.memory.claimants import Turn
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation

# Priorities trade with age: a starvation timeout of waiting weighs as much as so many points of priority.
POINTS_OF_A_TIMEOUT: Final = 5


def head_start(priority: int, starvation_timeout: float) -> float:
    """Return the seconds by which a priority puts an allocation forward: the older by so much, the equal."""
    return priority * starvation_timeout / POINTS_OF_A_TIMEOUT if isfinite(starvation_timeout) else 0.0


def is_overdue(state: State, waiting: WaitingAllocation, now: float) -> bool:
    """Return whether its wait and the head start of its priority add up to the starvation timeout."""
    return waiting.aged(now) >= state.starvation_timeout


def last_passed(state: State, pending: PendingAllocation) -> Turn | None:
    """Return the last turn of the overdue allocations that one was chosen to go past; None if it goes past none.

    It was proven for these only that they do not miss it. Others that it went past, as contexts do, can wait for its
    end as for any other.
    """
    if not pending.passes_overdue:
        return None
    turns = (other.view.turn for other in state.queue if is_overdue(state, other.view, state.now))
    return max((turn for turn in turns if turn < pending.view.turn), default=None)


def first_overdue(state: State, devices: Iterable[str], now: float) -> dict[str, WaitingAllocation]:
    """Return the overdue allocation of each of the devices whose turn is first, if it has one; in the order of turns.

    An allocation that waits for external memory, or for others of its gang, holds nobody back.
    """
    found = []
    for device in devices:
        if device not in state.drained:
            found += first_overdue_on(state, device, now)
    return {w.device: w for w in sorted(found, key=lambda w: w.turn)}


def first_overdue_on(state: State, device: str, now: float) -> list[WaitingAllocation]:
    """Return the overdue allocation of a device whose turn is first, in a list that is empty without one."""
    for pending in state.queue.by_turn(device):
        if not is_overdue(state, pending.view, now):
            break
        if waits_for_holders(state, pending):
            return [pending.view]
    return []
