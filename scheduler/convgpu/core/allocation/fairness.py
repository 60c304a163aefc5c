"""Whose turn it is, and who has to stand back for whom (docs/policies.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from convgpu.core.state import Request, State
from convgpu.policies.memory.base import Waiting


def serving_order(state: State, waiting: Sequence[Waiting], now: float) -> Iterator[Waiting]:
    """Yield allocations in the order in which to serve them: advances, then age, then priority, then the policy.

    What a container holds while it waits is of use to nobody, so those that get nearer to their ends go first: they
    cannot overtake anybody for ever, because no advance goes beyond a limit. Among the overdue who holds memory goes
    before who holds none.
    """
    holders = state.ledger.holding
    advances = [one for one in waiting if one.container in holders and is_advance(state, one)]
    if advances:
        yield from _ranked(state, advances)
        done = {one.sequence for one in advances}
        waiting = [one for one in waiting if one.sequence not in done]
    late = [one for one in waiting if is_overdue(state, one, now)]
    yield from sorted(late, key=lambda one: (one.container not in holders, one.sequence))
    yield from _ranked(state, [one for one in waiting if not is_overdue(state, one, now)] if late else waiting)


def _ranked(state: State, waiting: Sequence[Waiting]) -> Iterator[Waiting]:
    for priority in sorted({one.priority for one in waiting}, reverse=True):
        yield from state.policy.rank([one for one in waiting if one.priority == priority], state.ledger.free)


def is_advance(state: State, one: Waiting) -> bool:
    """Would its container, which holds memory, hold more of the device than ever? Else it takes again what it freed."""
    account = state.ledger.accounts[one.container][one.device]
    return account.leased + one.size > account.high_water_mark


def is_overdue(state: State, one: Waiting, now: float) -> bool:
    """Has it waited as long as others may be served before it?"""
    return now - one.since >= state.starvation_timeout


@dataclass(frozen=True, slots=True)
class Precedence:
    """For whose sake newcomers, who hold nothing yet, stand back.

    Attributes:
        asking: by device: whoever asks there.
        claiming: by device: whoever has a limit there, wherever it asks.
    """

    asking: dict[str, Waiting]
    claiming: dict[str, Waiting]

    def before(self, state: State, one: Waiting) -> Waiting | None:
        """Return an older one that it has to let go first, None when there is none."""
        if one.container in state.ledger.holding:
            return None
        first = self.asking.get(one.device)
        if first is not None and first.sequence < one.sequence:
            return first
        for device in state.ledger.accounts[one.container] if self.claiming else ():
            first = self.claiming.get(device)
            if first is not None and first.sequence < one.sequence:
                return first
        return None


def precedence(state: State, now: float) -> Precedence:
    """Find who must not be overtaken by newcomers any more.

    Newcomers do not ask on a device before its oldest overdue allocation is served; if that fits but would not be
    safe, it is the holders of other devices that it waits for, so then on none of its container's devices. If it has
    waited for twice the timeout, whoever has a limit on one of these devices gets nothing anywhere: then those who can
    keep it waiting become fewer, and all of them can end without help of those that hold none (the state is safe).
    """
    asking: dict[str, Waiting] = {}
    claiming: dict[str, Waiting] = {}
    for device, one in overdue(state, now).items():
        asking.setdefault(device, one)
        devices = state.ledger.accounts[one.container]
        if one.missing <= state.ledger.free[device]:
            asking = dict.fromkeys(devices, one) | asking
        if now - one.since >= 2 * state.starvation_timeout:
            claiming = dict.fromkeys(devices, one) | claiming
    return Precedence(asking, claiming)


def eligible(state: State, now: float) -> list[Waiting]:
    """Return all that fit and need not stand back."""
    first = precedence(state, now)
    fits = fitting(state)
    if not first.asking:
        return fits
    # Most newcomers stand back for one on their own device: that is quickly seen.
    holding = state.ledger.holding
    oldest = {device: first.asking[device].sequence if device in first.asking else inf for device in state.settling}
    fits = [one for one in fits if one.container in holding or one.sequence <= oldest[one.device]]
    return [one for one in fits if first.before(state, one) is None]


def fitting(state: State) -> list[Waiting]:
    """Return all that fit into what is free."""
    fits = []
    for device, free in state.ledger.free.items():
        if free > 0 and device not in state.drained:
            fits += [request.view for request in state.queue.on(device) if request.view.missing <= free]
    return fits


def overdue(state: State, now: float) -> dict[str, Waiting]:
    """Return the oldest overdue allocation of each device that has one, oldest first.

    One that waits for memory that no container holds (of programs outside) keeps nobody back.
    """
    found = []
    for device in state.settling:
        if device not in state.drained:
            found += [request.view for request in _overdue_on(state, device, now)]
    return {one.device: one for one in sorted(found, key=lambda one: one.sequence)}


def _overdue_on(state: State, device: str, now: float) -> list[Request]:
    for request in state.queue.on(device):
        if not is_overdue(state, request.view, now):
            break
        if state.account(request).leased + request.asked.size <= state.ledger.usable[device]:
            return [request]
    return []
