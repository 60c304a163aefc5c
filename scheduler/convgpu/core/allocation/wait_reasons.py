"""The reason why each allocation waits: a view for people (`convgpu ps`, the dashboard) that changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from convgpu.core.allocation.admission import required
from convgpu.core.allocation.fairness import serving_order
from convgpu.core.allocation.hold_back import hold_back
from convgpu.core.memory.ledger import Ledger
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation
from convgpu.protocol.event_kinds import WaitReason


@dataclass(frozen=True, slots=True)
class Wait:
    """Why one allocation waits.

    Attributes:
        reason: the first that applies.
        ahead: how many allocations are served before it on its device if there is room.
        behind: the containers that hold the room that it lacks, largest first; only as many as would suffice if they
            ended.
        free: bytes of its device that are granted to nobody.
        missing: bytes that its container's grant on its device lacks for it.
    """

    reason: WaitReason
    ahead: int
    behind: tuple[str, ...]
    free: int = 0
    missing: int = 0


def explain(state: State, now: float, *, behind: bool = True) -> dict[int, Wait]:
    """Return why each waiting allocation waits, by the number of its request; `behind`: and for whom."""
    held_back = hold_back(state, state.settling, now)
    holdings = _largest_holdings_first(state.ledger) if behind else {}
    ahead = dict.fromkeys(state.settling, 0)
    waits = {}
    for waiting in serving_order(state, [pending.view for pending in state.queue], now):
        overdue = held_back.find(state, waiting)
        reason = _find_reason(state, waiting, overdue)
        those = _find_behind(state, waiting, reason, overdue, holdings) if behind else ()
        free = max(state.ledger.free[waiting.device], 0)
        missing = required(state, waiting)[waiting.device]
        waits[waiting.request] = Wait(reason, ahead[waiting.device], those, free, missing)
        ahead[waiting.device] += 1
    return waits


def explain_one(state: State, container: str, request: int, now: float) -> Wait | None:
    """Return why one allocation waits, without its place in the order; None if it does not wait for memory."""
    for pending in state.containers[container].pending.values():
        if pending.view.request == request:
            waiting = pending.view
            overdue = hold_back(state, state.settling, now).find(state, waiting)
            reason = _find_reason(state, waiting, overdue)
            behind = _find_behind(state, waiting, reason, overdue, _largest_holdings_first(state.ledger))
            free = max(state.ledger.free[waiting.device], 0)
            return Wait(reason, 0, behind, free, required(state, waiting)[waiting.device])
    return None


def _find_reason(state: State, waiting: WaitingAllocation, overdue: WaitingAllocation | None) -> WaitReason:
    """Return why one is not served; `overdue`: the allocation behind which it is held back."""
    if state.recovering:
        return WaitReason.RECOVERING
    if state.missing_members(waiting.container):
        return WaitReason.GANG
    sizes = required(state, waiting)
    if not state.drained.isdisjoint(sizes):
        return WaitReason.DRAINED
    if any(size > state.ledger.free[device] for device, size in sizes.items()):
        return WaitReason.MEMORY
    return WaitReason.SAFETY if overdue is None else WaitReason.TURN


def _largest_holdings_first(ledger: Ledger) -> dict[str, list[tuple[str, int]]]:
    """Return by device which containers hold how many bytes of it."""
    holdings: dict[str, list[tuple[str, int]]] = {device: [] for device in ledger.capacity}
    for name, accounts in ledger.accounts.items():
        for device, account in accounts.items():
            if account.grant or account.charged:
                holdings[device].append((name, account.grant + account.charged))
    for held in holdings.values():
        held.sort(key=lambda holding: (-holding[1], holding[0]))
    return holdings


def _find_behind(
    state: State,
    waiting: WaitingAllocation,
    reason: WaitReason,
    overdue: WaitingAllocation | None,
    holdings: Mapping[str, list[tuple[str, int]]],
) -> tuple[str, ...]:
    """Return the containers whose ends would make room: for it, or for all its container may still ask for."""
    ledger = state.ledger
    if reason is WaitReason.GANG:
        return tuple(name for name in state.missing_members(waiting.container) if name != "?")
    if reason is WaitReason.MEMORY:
        lacking = {device: size - ledger.free[device] for device, size in required(state, waiting).items()}
    elif reason is WaitReason.SAFETY:
        own = waiting.container
        lacking = {device: ledger.shortage(own, device) for device in ledger.accounts[own]}
    else:
        return (overdue.container,) if overdue is not None and reason is WaitReason.TURN else ()
    found: dict[str, int] = {}
    for device in lacking:
        for name, size in holdings[device]:
            if lacking[device] <= 0:
                break
            if name != waiting.container:
                found[name] = max(found.get(name, 0), size)
                lacking[device] -= size
    return tuple(sorted(found, key=lambda name: -found[name]))
