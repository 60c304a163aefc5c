"""Admission of the whole: containers that start with their whole limits or not at all, alone or as a gang.

While such a container waits for that it holds nothing. Once it is admitted its grants are reserved: what of them is
idle goes to nobody else, so it never waits again (docs/policies.md, Admission of the whole; Gangs).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from convgpu.core.memory.account import Account
from convgpu.core.memory.claimants import Turn
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation

# Seconds that the containers of a gang wait for those of it that have not come; then their allocations are rejected.
GANG_TIMEOUT: Final = 300.0


def is_newcomer(state: State, name: str) -> bool:
    """Return whether a container holds nothing, nor does its gang."""
    if name in state.ledger.holders:
        return False
    gang = state.containers[name].gang
    return not any(member in state.ledger.holders for member in state.gangs.get(gang, ()))


def joint_containers(state: State, name: str) -> list[str]:
    """Return the containers that are granted memory together with this one: its gang's, or itself alone."""
    gang = state.containers[name].gang
    if not gang or not state.awaits_admission(name):
        return [name]
    others = state.containers
    return [m for m in state.gangs[gang] if state.awaits_admission(m) and (others[m].pending or m == name)]


def required(state: State, waiting: WaitingAllocation) -> Mapping[str, int]:
    """Return the bytes by device that have to be free for an allocation: its own, or the whole limits it comes with.

    Idle memory of its own is there already. (It is taken back before others wait, except for what is reserved.)
    """
    if not state.awaits_admission(waiting.container):
        account = state.ledger.accounts[waiting.container][waiting.device]
        return {waiting.device: max(waiting.size - account.idle, 0)}
    return _lacking(state, joint_containers(state, waiting.container))


def _lacking(state: State, names: Iterable[str]) -> dict[str, int]:
    """Return the bytes by device that containers lack for their whole limits."""
    sizes: dict[str, int] = {}
    for name in names:
        for device, account in state.ledger.accounts[name].items():
            is_unified = name in state.ledger.unified and state.card(device) > 0  # of a lost device it gets nothing
            limit = min(account.limit, state.ledger.usable[device]) if is_unified else account.limit
            sizes[device] = sizes.get(device, 0) + max(limit - account.grant - account.charged, 0)
    return sizes


def waits_for_holders(state: State, pending: PendingAllocation) -> bool:
    """Return whether the ends of containers serve it: it waits neither for external memory nor for its gang.

    Nor, with whole limits, for a drained device.
    """
    if not state.awaits_admission(pending.container):
        return state.account(pending).leased + pending.size <= state.ledger.usable[pending.device]
    if state.missing_members(pending.container):
        return False
    sizes = required(state, pending.view)
    return state.drained.isdisjoint(sizes) and all(size <= state.ledger.usable[d] for d, size in sizes.items())


def can_be_admitted(state: State, waiting: WaitingAllocation) -> bool:
    """Return whether all whole limits that an allocation comes with are free, which is always safe."""
    sizes = required(state, waiting)
    if not state.drained.isdisjoint(sizes) or state.missing_members(waiting.container):
        return False
    account = state.ledger.accounts[waiting.container][waiting.device]
    if account.held + waiting.size > account.limit:  # it waits for a higher limit
        return False
    return all(size <= state.ledger.free[device] for device, size in sizes.items())


def admit(state: State, pending: PendingAllocation, passed: Turn | None) -> None:
    """Grant and reserve the whole limits; `passed`: the last turn of the overdue allocations that it goes past."""
    for name in joint_containers(state, pending.container):
        state.ledger.claimants.begin_holding(name, passed)
        _reserve(state, name)
        mark_admitted(state, name)


def reserve_again(state: State) -> None:
    """Reserve what stays granted to admitted containers that lack some of it; where not all is free, what is safe.

    An earlier scheduler had admitted them, and their processes came back with what they hold; or external memory was
    in the place of what was reserved, and has ended. Nobody else is granted anything before.
    """
    state.lacks_reserves = False
    admitted: dict[str, list[str]] = {}
    for name, container in state.containers.items():
        if container.is_admitted and name not in state.ledger.unified:  # for those see complete_unified
            admitted.setdefault(f"gang {container.gang}" if container.gang else name, []).append(name)
    for names in admitted.values():
        if not any(_lacks_of_reserve(state, name) for name in names):
            continue
        fits = all(size <= state.ledger.free[device] for device, size in _lacking(state, names).items())
        state.lacks_reserves |= not fits
        _reserve_part(state, names, is_safe=fits)


def reserve_of(state: State, name: str, account: Account) -> int:
    """Return the bytes that stay granted to an admitted container: its limit, or what it turned out to need.

    Nobody could be given what a unified container turned out not to need: it has its device alone.
    """
    return (account.limit if name in state.ledger.unified else account.expected) - account.charged


def _lacks_of_reserve(state: State, name: str) -> bool:
    return any(account.grant < reserve_of(state, name, account) for account in state.ledger.accounts[name].values())


def _reserve_part(state: State, names: Iterable[str], *, is_safe: bool) -> None:
    """Reserve what is free of what containers lack, as external memory may leave in parts.

    No more than stays reserved: what is beyond is not taken back before others are looked at who wait for it.

    Args:
        state: in which they are admitted.
        names: of the containers.
        is_safe: whatever they get, as their whole limits are free.
    """
    ledger = state.ledger
    for name in names:
        for device, account in ledger.accounts[name].items():
            size = min(reserve_of(state, name, account) - account.grant, ledger.free[device])
            if size > 0 and (is_safe or ledger.is_safe_to_grant(name, device, size)):
                ledger.grant(name, device, size)
                ledger.changed_containers[name] = None  # what waits of it may be in that


def _reserve(state: State, name: str) -> None:
    for device, account in state.ledger.accounts[name].items():
        state.ledger.grant(name, device, max(account.limit - account.grant - account.charged, 0))
    state.ledger.changed_containers[name] = None


def complete_unified(state: State) -> None:
    """Reserve again what facts took of the whole limit of a unified container, once they are over.

    It has its device alone, which holds beside its capacity what is more: so nobody's memory is lacking for it, and
    nobody else's end brings it.
    """
    ledger = state.ledger
    for name in ledger.unified if not state.recovering else ():
        for device, account in ledger.accounts[name].items() if state.containers[name].is_admitted else ():
            is_taken = ledger.free[device] < ledger.pool[device] or device in state.drained or state.card(device) <= 0
            if account.grant + account.charged < account.limit and not is_taken and _is_alone(state, name, device):
                _reserve(state, name)


def _is_alone(state: State, name: str, device: str) -> bool:
    accounts = (state.ledger.accounts[other].get(device) for other in state.ledger.holders if other != name)
    return not any(account.grant for account in accounts if account is not None)


def mark_admitted(state: State, name: str) -> None:
    """Reserve what a container was granted, and let it claim with its gang as one."""
    container = state.containers[name]
    if container.is_whole:
        container.is_admitted = True
        state.reserved.update(container.pending)
        if container.gang:
            state.ledger.claimants.gangs[name] = container.gang


def return_admitted(state: State, name: str) -> None:
    """Count a container as admitted of which a process holds memory that an earlier scheduler granted.

    Who comes after recovery has what is free of its limits reserved at once; before, all have at the end of recovery.
    """
    mark_admitted(state, name)
    state.lacks_reserves |= state.containers[name].is_admitted


def admit_again(state: State, name: str) -> None:
    """Count a container as admitted whose next process uses the whole limits that were granted to the last one."""
    if state.awaits_admission(name) and not any(_lacking(state, [name]).values()):
        mark_admitted(state, name)


def end_admission(state: State, name: str) -> None:
    """Give up the reservation of a container whose processes have all ended."""
    state.containers[name].is_admitted = False
    state.ledger.claimants.gangs.pop(name, None)
    state.ledger.changed_containers[name] = None  # what of its grants is idle can go to others
    state.ledger.changes.release(state.ledger.accounts[name])


def is_reserved_taken(state: State, device: str) -> bool:
    """Return whether facts took of a device what containers were granted, or what is reserved for admitted ones.

    Idle reserves of an overcommitted device are taken back: then they are not free any more, either.
    """
    free = state.ledger.free[device]
    for name, container in state.containers.items():
        account = state.ledger.accounts.get(name, {}).get(device) if container.is_admitted else None
        if account is not None:
            free -= max(account.expected - account.grant - account.charged, 0)
    return free < 0
