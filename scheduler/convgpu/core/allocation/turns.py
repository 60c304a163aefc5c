"""Age: when an allocation is overdue, and whose turn it is among those that are (docs/policies.md)."""

from collections.abc import Iterable
from math import isfinite
from typing import Final

from convgpu.core.allocation.admission import waits_for_holders
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
