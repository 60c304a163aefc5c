"""Which newcomers are held back behind overdue allocations (docs/policies.md)."""

from collections.abc import Iterable
from dataclasses import dataclass

from convgpu.core.allocation.admission import is_newcomer, joint_containers, required, waits_for_holders
from convgpu.core.allocation.turns import first_overdue
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation


@dataclass(frozen=True, slots=True)
class HoldBack:
    """The overdue allocations behind which newcomers, which hold nothing yet, are held back.

    Attributes:
        requesting: by device: for newcomers that request memory of it.
        limited: by device: for newcomers that have a limit on it, whatever device they request memory of.
    """

    requesting: dict[str, WaitingAllocation]
    limited: dict[str, WaitingAllocation]

    def find(self, state: State, waiting: WaitingAllocation) -> WaitingAllocation | None:
        """Return the overdue allocation behind which one is held back, None when there is none."""
        if not is_newcomer(state, waiting.container):
            return None
        overdue = self.requesting.get(waiting.device)
        if overdue is not None and overdue.turn < waiting.turn:
            return overdue
        for device in state.ledger.accounts[waiting.container] if self.limited else ():
            overdue = self.limited.get(device)
            if overdue is not None and overdue.turn < waiting.turn:
                return overdue
        return _first_before_context(state, waiting) if waiting.is_context else None


def _first_before_context(state: State, waiting: WaitingAllocation) -> WaitingAllocation | None:
    """Return the allocation that waits for memory of the device before the context of a newcomer, None without one.

    A program that waits with a context holds memory that is of use to nobody (docs/policies.md, Contexts).
    """
    for pending in state.queue.by_turn(waiting.device):
        if pending.view.turn >= waiting.turn:
            return None
        if waits_for_holders(state, pending):
            return pending.view
    return None


def hold_back(state: State, devices: Iterable[str], now: float) -> HoldBack:
    """Find the overdue allocations that newcomers must not overtake any more, among those that wait for these devices.

    On each device that is its first overdue allocation by turn. If that fits but would not be safe, or if it needs
    memory of several devices at once, it waits for holders of other devices, so newcomers are held back on all devices
    of its container. If its age is twice the
    timeout, newcomers with a limit on one of these devices get nothing anywhere: those that can keep it waiting become
    fewer, and all of them can end without those that hold nothing (the state is safe).
    """
    requesting: dict[str, WaitingAllocation] = {}
    limited: dict[str, WaitingAllocation] = {}
    for device, overdue in first_overdue(state, devices, now).items():
        requesting.setdefault(device, overdue)
        sizes = required(state, overdue)
        concerned = {
            other for name in joint_containers(state, overdue.container) for other in state.ledger.accounts[name]
        }
        if len(sizes) > 1 or sizes[device] <= state.ledger.free[device]:
            requesting = dict.fromkeys(concerned, overdue) | requesting
        if overdue.aged(now) >= 2 * state.starvation_timeout:
            limited = dict.fromkeys(concerned, overdue) | limited
    return HoldBack(requesting, limited)
