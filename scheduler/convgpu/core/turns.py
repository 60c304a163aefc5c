"""Whose turn it is: age before priority before policy, and who has to stand back for whom (docs/policies.md)."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from convgpu.core.state import Request, State
from convgpu.policies.base import Waiting


def in_turn(state: State, waiting: Sequence[Waiting], now: float) -> Iterator[Waiting]:
    """Yield allocations in the order in which to serve them."""
    late = [one for one in waiting if is_overdue(state, one, now)]
    yield from sorted(late, key=attrgetter("sequence"))
    rest = [one for one in waiting if not is_overdue(state, one, now)] if late else waiting
    for priority in sorted({one.priority for one in rest}, reverse=True):
        yield from state.policy.rank([one for one in rest if one.priority == priority], state.ledger.free)


def is_overdue(state: State, one: Waiting, now: float) -> bool:
    """Has it waited as long as others may be served before it?"""
    return now - one.since >= state.patience


def eligible(state: State, now: float) -> list[Waiting]:
    """Return all that fit; while some are overdue, those that must not go before them are left out.

    The oldest overdue allocation of each device is served as soon as it can be. Until then whoever holds
    nothing yet is not served on that device; and if it fits but would not be safe, it is the holders of other
    devices that it waits for, so then on none of its container's devices. Why nobody waits for ever: those
    that hold memory can all end without help of those that hold none (the state is safe).
    """
    fits = fitting(state)
    kept = kept_for(state, now)
    if not kept:
        return fits
    for one in dict.fromkeys(kept.values()):
        if state.ledger.is_safe_to_grant(one.container, one.device, one.missing):
            return [one]
    holders = set(state.ledger.holders)
    return [one for one in fits if one.container in holders or one.device not in kept]


def fitting(state: State) -> list[Waiting]:
    """Return all that fit into what is free."""
    fits = []
    for device, free in state.ledger.free.items():
        if free > 0 and device not in state.drained:
            fits += [request.view for request in state.queue.on(device) if request.view.missing <= free]
    return fits


def kept_for(state: State, now: float) -> dict[str, Waiting]:
    """Return the devices on which newcomers stand back, each with the overdue allocation for whose sake."""
    kept: dict[str, Waiting] = {}
    for device, one in overdue(state, now).items():
        kept.setdefault(device, one)
        if one.missing <= state.ledger.free[device]:
            for other in state.ledger.accounts[one.container]:
                kept.setdefault(other, one)
    return kept


def overdue(state: State, now: float) -> dict[str, Waiting]:
    """Return the oldest overdue allocation of each device that has one, oldest first.

    One that waits for memory that no container holds (of programs outside) keeps nobody back.
    """
    found = []
    for device in state.settling:
        if device not in state.drained:
            found += [request.view for request in _overdue_on(state, device, now)]
    return {one.device: one for one in sorted(found, key=attrgetter("sequence"))}


def _overdue_on(state: State, device: str, now: float) -> list[Request]:
    for request in state.queue.on(device):
        if not is_overdue(state, request.view, now):
            break
        if state.account(request).leased + request.asked.size <= state.ledger.usable[device]:
            return [request]
    return []
