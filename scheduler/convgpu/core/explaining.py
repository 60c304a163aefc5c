"""Why does it wait? A view for people (`convgpu ps`, the dashboard); it changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from convgpu.core.ledger import Ledger
from convgpu.core.state import State
from convgpu.core.turns import in_turn, kept_for
from convgpu.policies.base import Waiting


class Reason(StrEnum):
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

    reason: Reason
    ahead: int
    behind: tuple[str, ...]


def explain(state: State, now: float) -> dict[int, Wait]:
    """Return why each waiting allocation waits, by the number of its request."""
    kept = kept_for(state, now)
    holders = set(state.ledger.holders)
    most = {device: _most_first(state.ledger, device) for device in state.settling}
    ahead = dict.fromkeys(state.settling, 0)
    waits = {}
    for one in in_turn(state, [request.view for request in state.queue], now):
        overdue = kept.get(one.device)
        if state.recovering:
            reason = Reason.RECOVERING
        elif one.device in state.drained:
            reason = Reason.DRAINED
        elif one.missing > state.ledger.free[one.device]:
            reason = Reason.MEMORY
        elif overdue is not None and overdue is not one and one.container not in holders:
            reason = Reason.TURN
        else:
            reason = Reason.SAFETY
        behind: tuple[str, ...] = ()
        if reason is Reason.TURN and overdue is not None:
            behind = (overdue.container,)
        elif reason in {Reason.MEMORY, Reason.SAFETY}:
            behind = _behind(state.ledger, one, reason, most)
        waits[one.request] = Wait(reason, ahead[one.device], behind)
        ahead[one.device] += 1
    return waits


def _most_first(ledger: Ledger, device: str) -> list[tuple[str, int]]:
    """Return who holds how much of the device."""
    accounts = ((name, accounts.get(device)) for name, accounts in ledger.accounts.items())
    held = [(name, account.grant + account.charged) for name, account in accounts if account is not None]
    return sorted((one for one in held if one[1]), key=lambda one: (-one[1], one[0]))


def _behind(ledger: Ledger, one: Waiting, reason: Reason, most: Mapping[str, list[tuple[str, int]]]) -> tuple[str, ...]:
    """Return the containers whose ends would make room: for it, or for all its container may still ask for."""
    needed = {one.device: one.missing}
    if reason is Reason.SAFETY:
        needed = {device: ledger.missing(one.container, device) for device in ledger.accounts[one.container]}
    found: dict[str, int] = {}
    for device, size in needed.items():
        lacking = size - ledger.free[device]
        for name, held in most[device]:
            if lacking <= 0:
                break
            if name != one.container:
                found[name] = max(found.get(name, 0), held)
                lacking -= held
    return tuple(sorted(found, key=lambda name: -found[name]))
