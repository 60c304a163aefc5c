"""The serving order of waiting allocations, and which newcomers are held back (docs/policies.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from convgpu.core.state import PendingAllocation, State
from convgpu.policies.memory.base import WaitingAllocation

# Priorities trade with age: a starvation timeout of waiting weighs as much as so many points of priority.
POINTS_OF_A_TIMEOUT: Final = 5


def serving_order(state: State, waiting: Sequence[WaitingAllocation], now: float) -> Iterator[WaitingAllocation]:
    """Yield allocations in the order in which to serve them.

    First the requests of holders that raise a high-water mark, then the overdue ones by turn, then the others by
    priority and policy. What a container holds while it waits is of use to nobody, so holders that make progress go
    first; they cannot overtake others for ever, because no high-water mark exceeds a limit.
    """
    progressing = _raising_high_water_mark(state, waiting)
    if progressing:
        yield from _ranked(state, progressing)
        done = {w.sequence for w in progressing}
        waiting = [w for w in waiting if w.sequence not in done]
    overdue = [w for w in waiting if is_overdue(state, w, now)]
    yield from sorted(overdue, key=lambda w: w.turn)
    yield from _ranked(state, [w for w in waiting if not is_overdue(state, w, now)] if overdue else waiting)


def _ranked(state: State, waiting: Sequence[WaitingAllocation]) -> Iterator[WaitingAllocation]:
    for priority in sorted({w.priority for w in waiting}, reverse=True):
        yield from state.policy.rank([w for w in waiting if w.priority == priority], state.ledger.free)


def _raising_high_water_mark(state: State, waiting: Sequence[WaitingAllocation]) -> list[WaitingAllocation]:
    """Return the requests of holders that make progress: all others take again what their containers freed.

    A request makes progress if its container would hold more of the device than at any time since the oldest
    allocation there began to wait. So what earlier programs of the container held does not count, and yet nobody is
    overtaken by more bytes than holders lacked to their limits when it began to wait.
    """
    holders = state.ledger.holders
    of_holders = [w for w in waiting if w.container in holders]
    oldest = {device: _oldest_waiting_on(state, device) for device in dict.fromkeys(w.device for w in of_holders)}
    return [w for w in of_holders if _raises_high_water_mark(state, w, oldest[w.device])]


def _raises_high_water_mark(state: State, waiting: WaitingAllocation, oldest: int) -> bool:
    account = state.ledger.accounts[waiting.container][waiting.device]
    return account.leased + waiting.size > account.high_water_mark_since(oldest)


def _oldest_waiting_on(state: State, device: str) -> int:
    """Return the sequence of the oldest allocation that waits for memory of the device, and not for external memory."""
    return next((pending.sequence for pending in state.queue.on(device) if _fits_usable(state, pending)), 0)


def _fits_usable(state: State, pending: PendingAllocation) -> bool:
    return state.account(pending).leased + pending.size <= state.ledger.usable[pending.device]


def overtakes_overdue(state: State, waiting: WaitingAllocation) -> bool:
    """Return whether an allocation is overdue that a holder's request has to be served after."""
    overdue = _first_overdue_on(state, waiting.device, state.now)
    if not overdue or overdue[0].turn >= waiting.turn:
        return False
    return not _raises_high_water_mark(state, waiting, _oldest_waiting_on(state, waiting.device))


def is_overdue(state: State, waiting: WaitingAllocation, now: float) -> bool:
    """Return whether its wait and the head start of its priority add up to the starvation timeout."""
    return waiting.aged(now) >= state.starvation_timeout


def head_start(priority: int, starvation_timeout: float) -> float:
    """Return the seconds by which a priority puts an allocation forward: the older by so much, the equal."""
    return priority * starvation_timeout / POINTS_OF_A_TIMEOUT if isfinite(starvation_timeout) else 0.0


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
        if waiting.container in state.ledger.holders:
            return None
        overdue = self.requesting.get(waiting.device)
        if overdue is not None and overdue.turn < waiting.turn:
            return overdue
        for device in state.ledger.accounts[waiting.container] if self.limited else ():
            overdue = self.limited.get(device)
            if overdue is not None and overdue.turn < waiting.turn:
                return overdue
        return None


def hold_back(state: State, now: float) -> HoldBack:
    """Find the overdue allocations that newcomers must not overtake any more.

    On each device that is its first overdue allocation by turn. If that fits but would not be safe, it waits for
    holders of other devices, so newcomers are held back on all devices of its container. If its age is twice the
    timeout, newcomers with a limit on one of these devices get nothing anywhere: those that can keep it waiting become
    fewer, and all of them can end without those that hold nothing (the state is safe).
    """
    requesting: dict[str, WaitingAllocation] = {}
    limited: dict[str, WaitingAllocation] = {}
    for device, overdue in first_overdue(state, now).items():
        requesting.setdefault(device, overdue)
        devices = state.ledger.accounts[overdue.container]
        if overdue.size <= state.ledger.free[device]:
            requesting = dict.fromkeys(devices, overdue) | requesting
        if overdue.aged(now) >= 2 * state.starvation_timeout:
            limited = dict.fromkeys(devices, overdue) | limited
    return HoldBack(requesting, limited)


def eligible(state: State, now: float) -> list[WaitingAllocation]:
    """Return all that fit into free memory and are not held back."""
    held_back = hold_back(state, now)
    fits = _fitting(state)
    if not held_back.requesting:
        return fits
    # Most newcomers are held back by the first overdue allocation of their own device: a cheap test first.
    holders, requesting = state.ledger.holders, held_back.requesting
    first = {device: requesting[device].turn if device in requesting else (inf, 0) for device in state.settling}
    fits = [w for w in fits if w.container in holders or w.turn <= first[w.device]]
    return [w for w in fits if held_back.find(state, w) is None]


def _fitting(state: State) -> list[WaitingAllocation]:
    fits = []
    for device, free in state.ledger.free.items():
        if free > 0 and device not in state.drained:
            fits += [pending.view for pending in state.queue.on(device) if pending.view.size <= free]
    return fits


def first_overdue(state: State, now: float) -> dict[str, WaitingAllocation]:
    """Return the overdue allocation of each device whose turn is first, if it has one; in the order of turns.

    An allocation that waits for external memory, which no container holds, holds nobody back.
    """
    found = []
    for device in state.settling:
        if device not in state.drained:
            found += _first_overdue_on(state, device, now)
    return {w.device: w for w in sorted(found, key=lambda w: w.turn)}


def _first_overdue_on(state: State, device: str, now: float) -> list[WaitingAllocation]:
    for pending in state.queue.by_turn(device):
        if not is_overdue(state, pending.view, now):
            break
        if _fits_usable(state, pending):
            return [pending.view]
    return []
