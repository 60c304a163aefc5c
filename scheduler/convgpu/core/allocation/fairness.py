"""The serving order of waiting allocations (docs/policies.md)."""

from collections.abc import Callable, Iterator, Sequence
from math import inf

from convgpu.core.allocation.admission import is_newcomer, waits_for_holders
from convgpu.core.allocation.hold_back import HoldBack
from convgpu.core.allocation.turns import first_overdue_on, is_overdue
from convgpu.core.memory.ledger import Ledger
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation

MayPass = Callable[[WaitingAllocation, str, int], bool]


def serving_order(state: State, waiting: Sequence[WaitingAllocation], now: float) -> Iterator[WaitingAllocation]:
    """Yield allocations in the order in which to serve them.

    First the requests of holders that raise a high-water mark, then the overdue ones by turn, then the others by
    priority and policy. What a container holds while it waits is of use to nobody, so holders that make progress go
    first; they cannot overtake others for ever, because no high-water mark exceeds a limit. Of equal priority the one
    that started first comes first, so that few are half served (decision 212), and those that hold nothing but contexts
    come after the others.
    """
    progressing = _raising_high_water_mark(state, waiting)
    if progressing:
        yield from sorted(
            progressing,
            key=lambda w: (-w.priority, _has_only_contexts(state, w.container), w.container_order, w.sequence),
        )
        done = {w.sequence for w in progressing}
        waiting = [w for w in waiting if w.sequence not in done]
    overdue = [w for w in waiting if is_overdue(state, w, now)]
    yield from sorted(overdue, key=lambda w: w.turn)
    yield from _ranked(state, [w for w in waiting if not is_overdue(state, w, now)] if overdue else waiting)


def _ranked(state: State, waiting: Sequence[WaitingAllocation]) -> Iterator[WaitingAllocation]:
    """Yield allocations by priority and policy."""
    classes: dict[int, list[WaitingAllocation]] = {}
    for one in waiting:
        classes.setdefault(-one.priority, []).append(one)
    for rank in sorted(classes):
        yield from state.policy.rank(classes[rank], state.ledger.free)


def _has_only_contexts(state: State, name: str) -> bool:
    """Return whether the processes of a container have no more than contexts: it has not begun (decision 211)."""
    accounts = state.ledger.accounts[name].values()
    return sum(account.leased for account in accounts) <= state.containers[name].contexts


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


def eligible(state: State, devices: Sequence[str], held_back: HoldBack, may_pass: MayPass) -> list[WaitingAllocation]:
    """Return all that fit into free memory of these devices, without those that were found unsafe and still are.

    Nor with most of those that are held back and may not go on either.

    A newcomer that is held back may go on only if its whole limits are free, and if `may_pass` says of the overdue
    allocation, the device and what it claims there that it may (backfill.py).
    """
    found: list[WaitingAllocation] = []
    for device in devices:
        free = state.ledger.free[device]
        if free > 0 and device not in state.drained:
            first = held_back.requesting.get(device)
            if first is None:
                fits = [pending.view for pending in state.queue.fitting(device, free)]
            elif state.queue.count_fitting(device, free):
                fits = _not_behind(state, first, device) + _small_enough(state, device, held_back, may_pass)
            else:
                fits = []
            for refused in state.ledger.refusals(device):
                fits = [w for w in fits if w.container not in refused or refused[w.container] > _lacking(state, w)]
            found += fits
            found += [p.view for p in state.reserved.values() if p.device == device and _lacks_at_most(state, p, free)]
            found += [p.view for p in _larger_than_free(state, device)] if state.ledger.unified else []
    return found


def is_eligible(state: State, pending: PendingAllocation, held_back: HoldBack, may_pass: MayPass) -> bool:
    """Return the same of one that fits into free memory."""
    ledger, device, first = state.ledger, pending.device, held_back.requesting.get(pending.device)
    if device in state.drained:
        return False
    if first is None or pending.view.turn <= first.turn or not is_newcomer(state, pending.container):
        return True
    claim = max(pending.limit - state.account(pending).charged, pending.size)
    are_free = pending.limit <= ledger.free[device] and _are_limits_free(ledger, pending.container)
    return are_free and may_pass(first, device, claim)


def _not_behind(state: State, first: WaitingAllocation, device: str) -> list[WaitingAllocation]:
    """Return those that fit and are not held back behind the first overdue allocation of the device."""
    free = state.ledger.free[device]
    if state.gangs:
        fits = state.queue.fitting(device, free)
        found = [pending.view for pending in fits if not is_newcomer(state, pending.container)]
    else:
        found = [pending.view for pending in state.queue.of_holders(device) if pending.size <= free]
    for pending in state.queue.by_turn(device):
        if pending.view.turn > first.turn:
            break
        if pending.size <= free and is_newcomer(state, pending.container):
            found.append(pending.view)
    return found


def _small_enough(state: State, device: str, held_back: HoldBack, may_pass: MayPass) -> list[WaitingAllocation]:
    """Return the newcomers behind the first overdue allocation whose limits are free, and small enough to pass it."""
    ledger, first = state.ledger, held_back.requesting[device]
    is_charged = ledger.usable[device] < ledger.capacity[device] + ledger.pool[device] + ledger.beyond[device]
    free, turn, refused = ledger.free[device], first.turn, inf
    found = []
    for pending in state.queue.limited_to(device, free):
        waiting = pending.view
        claim = pending.limit - ledger.accounts[pending.container][device].charged if is_charged else pending.limit
        if claim >= refused and not is_charged:
            break
        claim = max(waiting.size, claim)
        if claim < refused and waiting.turn > turn and _are_limits_free(ledger, waiting.container):
            if may_pass(first, device, claim):
                found.append(waiting)
            else:
                refused = claim
    return [waiting for waiting in found if is_newcomer(state, waiting.container)]


def _are_limits_free(ledger: Ledger, newcomer: str) -> bool:
    """Return whether all that a container which holds nothing may be granted is free."""
    usable, free = ledger.usable, ledger.free
    for device, account in ledger.accounts[newcomer].items():
        if min(account.limit - account.charged, usable[device]) > free[device]:
            return False
    return True


def _larger_than_free(state: State, device: str) -> Iterator[PendingAllocation]:
    """Yield what waits for whole limits that a device need not have: one call of a unified container may be larger."""
    for name in state.ledger.unified:
        for pending in state.containers[name].pending.values() if state.awaits_admission(name) else ():
            if pending.device == device and pending.size > state.ledger.free[device]:
                yield pending


def _lacks_at_most(state: State, pending: PendingAllocation, free: int) -> bool:
    return pending.size > free >= _lacking(state, pending.view)


def _lacking(state: State, waiting: WaitingAllocation) -> int:
    """Return the bytes that the grant of its container lacks for it: what is reserved and idle is there already."""
    return waiting.size - state.ledger.accounts[waiting.container][waiting.device].idle
