"""The placer: chooses the devices of a container when its first process starts, and frees the choice afterwards.

A container without a place has no account: it claims nothing anywhere, and neither the safety check nor a policy sees
it. At its placement its limits on the chosen devices become claims like any other. It holds nothing then, so a safe
state stays safe.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

from convgpu.core.events import LimitInForce
from convgpu.core.gangs import Share, can_all_fit, take
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.placement import Compared, Displaced, Obstacle, Placed, Placement, PlacementRequested
from convgpu.core.state import Container, State
from convgpu.core.step import StepBuilder
from convgpu.policies.placement import Candidate


class Placer:
    """Places containers, and takes places back.

    Args:
        state: of the machine.
        step: receives the effects.
    """

    def __init__(self, state: State, step: StepBuilder) -> None:
        self._state = state
        self._ledger = state.ledger
        self._step = step
        self._on_lost: dict[str, None] = {}  # containers for which a device was chosen that is lost

    def open(self, name: str, limits: Mapping[str, int], placed: Placement | None) -> None:
        """Open the accounts of a new container; `placed`: where an earlier scheduler had placed it.

        That counts during recovery only: afterwards no process of it is left.
        """
        container = self._state.containers[name]
        container.offer = {device: limits[device] for device in self._ledger.capacity if device in limits}
        if container.choice is None:
            self._ledger.open(name, limits)
        elif placed is not None and self._state.recovering:
            container.placement = placed
            self._ledger.open(name, {device: limits[device] for device in placed.devices if device in limits})
        else:
            self._ledger.open(name, {})
            if placed is not None:
                self._step.add(Placed(name, None))

    def place(self, event: PlacementRequested) -> None:
        """Place a container if that is due and possible."""
        container = self._state.containers[event.container]
        if container.choice is None or not container.offer:
            return
        if container.placement is not None and not self._should_leave_drained(event.container):
            return
        placement = propose(self._state, event.container, event.visible, event.held)
        if not placement.devices:
            return
        if container.placement is not None:
            self._unplace(event.container)
        container.placement = placement
        self._ledger.open(event.container, {device: container.offer[device] for device in placement.devices})
        self._step.add(Placed(event.container, placement))

    def change_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Change the limits of a container where it is not placed, which needs no account."""
        container = self._state.containers[name]
        container.offer |= limits
        for device, limit in limits.items():
            if device not in self._ledger.accounts[name]:
                self._step.add(LimitInForce(name, device, limit, None))

    def free(self, name: str) -> None:
        """Free the choice of a container that holds no memory and has no process.

        What its ended processes may still have is held: without a place nobody would be charged with what stays.
        """
        container = self._state.containers[name]
        if container.placement is None or container.sessions or self._state.recovering:
            return
        if self._holds_nothing(name):
            self._unplace(name)

    def _unplace(self, name: str) -> None:
        container, accounts = self._state.containers[name], self._ledger.accounts[name]
        pending = [device for device, account in accounts.items() if account.target is not None]
        if container.sessions:
            for session in [number for number, owner in self._state.sessions.items() if owner == name]:
                for device in accounts:
                    self._state.forget_slot(session, device)
        container.placement = None
        container.is_admitted = False
        self._ledger.close(name)
        self._ledger.open(name, {})
        for device in pending:
            self._step.add(LimitInForce(name, device, container.offer[device], None))
        self._step.add(Placed(name, None))

    # -- chosen devices that are lost or drained -----------------------------------------------------------

    def report(self, device: str, obstacle: Obstacle) -> None:
        """Report the containers for which a device was chosen that is lost or drained now."""
        for name, container in self._state.containers.items():
            if _was_chosen(container) and device in self._ledger.accounts[name] and not self._has_gone(name):
                self._step.add(Displaced(name, device, obstacle))
        self.find_on_lost()

    def _has_gone(self, name: str) -> bool:
        """Return whether a container has ended, and has a place still only for what it may have left."""
        container = self._state.containers[name]
        return not (container.mounted or container.sessions or self._is_used(name))

    def find_on_lost(self) -> None:
        """Find the containers that are on a lost device which was chosen for them."""
        self._on_lost = {name: None for name in self._state.containers if self._is_on_lost(name)}

    def _is_on_lost(self, name: str) -> bool:
        container = self._state.containers.get(name)
        if container is None or not _was_chosen(container):
            return False
        return not self._state.lost.isdisjoint(self._ledger.accounts[name])

    def leave_lost(self) -> list[PendingAllocation]:
        """Free the choice of containers that hold nothing and are on a lost device; return what waits in vain.

        That is all of theirs, since a process cannot change its devices, of which the driver is told when it begins;
        and of containers that hold memory there what waits for the lost device.
        """
        left = []
        for name in list(self._on_lost):
            if not self._is_on_lost(name):
                del self._on_lost[name]
                continue
            left += self._stop_waiting(name, self._state.lost)
            if self._holds_nothing(name):
                del self._on_lost[name]
                left += self._stop_waiting(name, self._ledger.accounts[name])
                self._unplace(name)
        return left

    def _stop_waiting(self, name: str, devices: Collection[str]) -> list[PendingAllocation]:
        """Return what waited for memory of these devices, or was granted that and waited for room on them."""
        container, found = self._state.containers[name], list[PendingAllocation]()
        for waiting, drop in (
            (container.pending, self._state.dequeue),
            (container.deferred, self._state.drop_deferred),
            (container.doubted, self._state.drop_doubted),
        ):
            for pending in [pending for pending in waiting.values() if pending.device in devices]:
                drop(pending)
                found.append(pending)
        return found

    def _should_leave_drained(self, name: str) -> bool:
        """Return whether a container is to be placed anew for its next process: what waits would wait in vain then."""
        container, accounts = self._state.containers[name], self._ledger.accounts[name]
        is_drained = _was_chosen(container) and not self._state.drained.isdisjoint(accounts)
        waits = container.pending or container.doubted
        return is_drained and not waits and self._holds_nothing(name) and not self._state.recovering

    def _holds_nothing(self, name: str) -> bool:
        return not (self._is_used(name) or self._has_left(name))

    def _is_used(self, name: str) -> bool:
        return any(account.leased or account.charged for account in self._ledger.accounts[name].values())

    def _has_left(self, name: str) -> bool:
        """Return whether its ended processes may have memory; what a lost device had is gone."""
        devices = self._ledger.accounts[name].keys() - self._state.lost
        return any(self._state.left_by_ended(name, device) for device in devices)

    def is_leaving(self, name: str) -> bool:
        """Return whether nothing but what its ended processes may have keeps a container where it is."""
        container = self._state.containers.get(name)
        if container is None or not _was_chosen(container) or container.sessions:
            return False
        return not self._is_used(name) and self._has_left(name)


def _was_chosen(container: Container) -> bool:
    """Return whether the scheduler chose among devices; where it did not, no others can be had."""
    return container.placement is not None and bool(container.placement.policy)


def propose(state: State, name: str, visible: Sequence[str] = (), held: Sequence[str] = ()) -> Placement:
    """Return where a container would be placed now. It is not placed.

    Args:
        state: of the machine.
        name: of a container that has a choice.
        visible: the devices that its process sees; empty when that is not known.
        held: devices of which its process holds memory already.
    """
    container = state.containers[name]
    compared = tuple(_compare(state, name, container, visible))
    choice, policy = container.choice, state.placement_policy
    assert choice is not None, "only a container with a choice can be placed"  # noqa: S101
    seen = [row.device for row in compared if row.obstacle is not Obstacle.HIDDEN]
    if taken := [device for device in seen if device in held]:
        return Placement(tuple(taken), "", compared)
    if choice.is_default and _is_given_certain(state, visible):
        return Placement(_given(compared), "", compared)
    candidates = [_candidate(place, row) for place, row in enumerate(compared) if row.obstacle is None]
    ranked = [candidate.device for candidate in policy.rank(candidates, _placed_limits(state, name))]
    best = _choose(state, name, container, ranked, choice.count)
    return Placement(tuple(device for device in seen if device in best), policy.name, compared)


def _given(compared: Sequence[Compared]) -> tuple[str, ...]:
    """Return the devices that a process was given: those that can hold the limit, or all, where it waits.

    None if as many containers as may are on all of them.
    """
    seen = [row for row in compared if row.obstacle not in {Obstacle.HIDDEN, Obstacle.REUSE}]
    able = [row.device for row in seen if row.obstacle is not Obstacle.CAPACITY]
    return tuple(able or [row.device for row in seen])


def _choose(state: State, name: str, container: Container, ranked: list[str], count: int) -> tuple[str, ...]:
    """Return the first so many devices, none when there are fewer.

    Containers of a gang are on devices of their own as far as there are enough, and leave room for those of them that
    have no place yet.
    """
    if len(ranked) < count:
        return ()
    if not container.gang:
        return tuple(ranked[:count])
    others = [member for member in state.gangs[container.gang] if member != name]
    theirs = {device for member in others for device in state.ledger.accounts[member]}
    apart = sorted(ranked, key=lambda device: device in theirs)
    room = gang_room(state, others)
    coming = [share for member in others if (share := _share_to_come(state.containers[member])) is not None]
    for chosen in combinations(apart, count):
        if can_all_fit(take(room, container.offer, chosen), coming):
            return chosen
    return tuple(apart[:count])


def _share_to_come(container: Container) -> Share | None:
    """Return what a container needs that has no place yet; None if it has one, or no limits."""
    if container.choice is None or container.placement is not None or not container.offer:
        return None
    return Share(container.offer, container.choice.count)


def gang_room(state: State, members: Sequence[str]) -> dict[str, int]:
    """Return what devices have to hand out beside the whole limits that members of a gang have there."""
    room = dict(state.ledger.capacity)
    for member in members:
        for device, account in state.ledger.accounts[member].items():
            room[device] -= account.limit
    return room


def elastic_beside(state: State, name: str, device: str) -> int:
    """Return how many other containers that run are on a device and may leave it."""
    others = (other for other in state.residency.containers if other != name and device in state.ledger.accounts[other])
    return sum(state.containers[other].mounted or state.containers[other].sessions > 0 for other in others)


def most_elastic(state: State, device: str) -> float:
    """Return how many containers that may leave it can be on a device."""
    return state.reuse.get(device, math.inf)


def _is_given_certain(state: State, visible: Sequence[str]) -> bool:
    """Return whether a process sees fewer devices than there are; lost ones are seen by nobody."""
    return bool(visible) and not state.ledger.capacity.keys() - state.lost <= set(visible)


def _compare(state: State, name: str, container: Container, visible: Sequence[str]) -> Iterator[Compared]:
    """Yield the devices that the container may get, with what other containers claim of them already."""
    ledger = state.ledger
    promised, number = dict.fromkeys(ledger.capacity, 0), dict.fromkeys(ledger.capacity, 0)
    for limits in _claims(state, name):
        for device, limit in limits.items():
            promised[device] += limit
            number[device] += 1
    room = gang_room(state, [member for member in state.gangs.get(container.gang, ()) if member != name])
    for device, limit in container.offer.items():
        obstacle = None
        if visible and device not in visible:
            obstacle = Obstacle.HIDDEN
        elif device in state.lost:
            obstacle = Obstacle.LOST
        elif device in state.drained:
            obstacle = Obstacle.DRAINED
        elif limit > ledger.capacity[device]:
            obstacle = Obstacle.CAPACITY
        elif limit > room[device]:
            obstacle = Obstacle.GANG
        elif name in state.residency.containers and elastic_beside(state, name, device) >= most_elastic(state, device):
            obstacle = Obstacle.REUSE
        figures = (ledger.capacity[device], ledger.free[device], promised[device], number[device])
        yield Compared(device, limit, *figures, obstacle)


def _claims(state: State, name: str) -> Iterator[Mapping[str, int]]:
    """Yield what is expected of each other container that may use memory: it is mounted, or has a process."""
    for other, container in state.containers.items():
        if other != name and (container.mounted or container.sessions):
            yield {device: account.expected for device, account in state.ledger.accounts[other].items()}


def _placed_limits(state: State, name: str) -> list[int]:
    return [limit for limits in _claims(state, name) for limit in limits.values()]


def _candidate(position: int, row: Compared) -> Candidate:
    return Candidate(row.device, position, row.limit, row.capacity, row.free, row.promised, row.containers)
