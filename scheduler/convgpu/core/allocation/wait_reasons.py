"""Why does it wait? A view for people (`convgpu ps`, the dashboard); it changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from convgpu.core.allocation.fairness import precedence, serving_order
from convgpu.core.memory.ledger import Ledger
from convgpu.core.state import State
from convgpu.policies.memory.base import Waiting


class WaitReason(StrEnum):
    """Why a waiting allocation is not served."""

    MEMORY = "memory"  # not enough is free
    TURN = "turn"  # an overdue one is before it
    SAFETY = "safety"  # it fits, but then not everybody could end
    DRAINED = "drained"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True)
class Wait:
    """Of one waiting allocation: `ahead` are served before it on its device if there is room, `behind` hold that room.

    `behind` are containers, most first, and only as many as would do if they ended.
    """

    reason: WaitReason
    ahead: int
    behind: tuple[str, ...]


def explain(state: State, now: float) -> dict[int, Wait]:
    """Return why each waiting allocation waits, by the number of its request."""
    first = precedence(state, now)
    most = _most_first(state.ledger)
    ahead = dict.fromkeys(state.settling, 0)
    waits = {}
    for one in serving_order(state, [request.view for request in state.queue], now):
        before = first.before(state, one)
        reason = _reason(state, one, before)
        waits[one.request] = Wait(reason, ahead[one.device], _behind(state.ledger, one, reason, before, most))
        ahead[one.device] += 1
    return waits


def _reason(state: State, one: Waiting, before: Waiting | None) -> WaitReason:
    """Say why one is not served; `before`: the overdue one that it has to stand back for."""
    if state.recovering:
        return WaitReason.RECOVERING
    if one.device in state.drained:
        return WaitReason.DRAINED
    if one.missing > state.ledger.free[one.device]:
        return WaitReason.MEMORY
    return WaitReason.SAFETY if before is None else WaitReason.TURN


def _most_first(ledger: Ledger) -> dict[str, list[tuple[str, int]]]:
    """Return who holds how much of each device."""
    most: dict[str, list[tuple[str, int]]] = {device: [] for device in ledger.capacity}
    for name, accounts in ledger.accounts.items():
        for device, account in accounts.items():
            if account.grant or account.charged:
                most[device].append((name, account.grant + account.charged))
    for held in most.values():
        held.sort(key=lambda one: (-one[1], one[0]))
    return most


def _behind(
    ledger: Ledger, one: Waiting, reason: WaitReason, before: Waiting | None, most: Mapping[str, list[tuple[str, int]]]
) -> tuple[str, ...]:
    """Return the containers whose ends would make room: for it, or for all its container may still ask for."""
    if reason is WaitReason.MEMORY:
        lacking = {one.device: one.missing - ledger.free[one.device]}
    elif reason is WaitReason.SAFETY:
        lacking = {device: ledger.lacking(one.container, device) for device in ledger.accounts[one.container]}
    else:
        return (before.container,) if before is not None and reason is WaitReason.TURN else ()
    found: dict[str, int] = {}
    for device in lacking:
        for name, held in most[device]:
            if lacking[device] <= 0:
                break
            if name != one.container:
                found[name] = max(found.get(name, 0), held)
                lacking[device] -= held
    return tuple(sorted(found, key=lambda name: -found[name]))
