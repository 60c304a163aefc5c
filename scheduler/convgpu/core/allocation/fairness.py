"""The serving order of waiting allocations (docs/policies.md)."""

from collections.abc import Iterator, Sequence
from math import inf

from convgpu.core.allocation.admission import waits_for_holders
from convgpu.core.allocation.hold_back import HoldBack
from convgpu.core.allocation.turns import first_overdue_on, is_overdue
from convgpu.core.state import PendingAllocation, State
from convgpu.policies.memory.base import WaitingAllocation


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
    return next((pending.sequence for pending in state.queue.on(device) if waits_for_holders(state, pending)), 0)


def overtakes_overdue(state: State, waiting: WaitingAllocation) -> bool:
    """Return whether an allocation is overdue that a holder's request has to be served after."""
    overdue = first_overdue_on(state, waiting.device, state.now)
    if not overdue or overdue[0].turn >= waiting.turn:
        return False
    return not _raises_high_water_mark(state, waiting, _oldest_waiting_on(state, waiting.device))


def eligible(state: State, held_back: HoldBack) -> list[WaitingAllocation]:
    """Return all that fit into free memory, without most of those that are held back and may not go on either.

    A newcomer that is held back may go on only if its whole limits are free (backfill.py).
    """
    fits = _fitting(state)
    if not held_back.requesting:
        return fits
    # Most newcomers are held back by the first overdue allocation of their own device: a cheap test first.
    ledger, requesting = state.ledger, held_back.requesting
    first = {device: requesting[device].turn if device in requesting else (inf, 0) for device in state.settling}
    return [
        w
        for w in fits
        if w.container in ledger.holders
        or w.turn <= first[w.device]
        or ledger.accounts[w.container][w.device].limit <= ledger.free[w.device]
    ]


def _lacks_at_most(state: State, pending: PendingAllocation, free: int) -> bool:
    return pending.size > free >= pending.size - state.account(pending).idle


def _fitting(state: State) -> list[WaitingAllocation]:
    fits = []
    for device, free in state.ledger.free.items():
        if free > 0 and device not in state.drained:
            fits += [pending.view for pending in state.queue.fitting(device, free)]
            fits += [p.view for p in state.reserved.values() if p.device == device and _lacks_at_most(state, p, free)]
    return fits
