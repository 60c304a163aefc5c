"""The placer: chooses the devices of a container when its first process starts, and frees the choice afterwards.

A container without a place has no account: it claims nothing anywhere, and neither the safety check nor a policy sees
it. At its placement its limits on the chosen devices become claims like any other. It holds nothing then, so a safe
state stays safe.
"""

from collections.abc import Iterator, Mapping, Sequence

from convgpu.core.events import LimitInForce
from convgpu.core.placement import Compared, Obstacle, Placed, Placement, PlacementRequested
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
        if container.choice is None or container.placement is not None or not container.offer:
            return
        placement = propose(self._state, event.container, event.visible, event.held)
        if placement.devices:
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
        """Free the choice of a container that holds no memory and has no process."""
        container, accounts = self._state.containers[name], self._ledger.accounts[name]
        if container.placement is None or container.sessions or self._state.recovering:
            return
        if any(account.charged for account in accounts.values()):
            return
        pending = [device for device, account in accounts.items() if account.target is not None]
        container.placement = None
        self._ledger.close(name)
        self._ledger.open(name, {})
        for device in pending:
            self._step.add(LimitInForce(name, device, container.offer[device], None))
        self._step.add(Placed(name, None))


def propose(state: State, name: str, visible: Sequence[str] = (), held: Sequence[str] = ()) -> Placement:
    """Return where a container would be placed now. It is not placed.

    Args:
        state: of the machine.
        name: of a container that has a choice.
        visible: the devices that its process sees; empty when that is not known.
        held: devices of which its process holds memory already.
    """
    container = state.containers[name]
    compared = tuple(_compare(state, container, visible))
    choice, policy = container.choice, state.placement_policy
    assert choice is not None, "only a container with a choice can be placed"  # noqa: S101
    seen = [row.device for row in compared if row.obstacle is not Obstacle.HIDDEN]
    if taken := [device for device in seen if device in held]:
        return Placement(tuple(taken), "", compared)
    if choice.is_default and _is_given_certain(state, visible):
        able = [row.device for row in compared if row.device in seen and row.obstacle is not Obstacle.CAPACITY]
        return Placement(tuple(able or seen), "", compared)
    candidates = [_candidate(place, row) for place, row in enumerate(compared) if row.obstacle is None]
    if len(candidates) < choice.count:
        return Placement((), policy.name, compared)
    best = {candidate.device for candidate in policy.rank(candidates, _placed_limits(state))[: choice.count]}
    return Placement(tuple(device for device in seen if device in best), policy.name, compared)


def _is_given_certain(state: State, visible: Sequence[str]) -> bool:
    """Return whether a process sees fewer devices than there are; lost ones are seen by nobody."""
    present = {device for device, usable in state.ledger.usable.items() if usable > 0}
    return bool(visible) and not present <= set(visible)


def _compare(state: State, container: Container, visible: Sequence[str]) -> Iterator[Compared]:
    """Yield the devices that the container may get, with what containers claim of them already."""
    ledger = state.ledger
    promised, number = dict.fromkeys(ledger.capacity, 0), dict.fromkeys(ledger.capacity, 0)
    for _, limits in _claims(state):
        for device, limit in limits.items():
            promised[device] += limit
            number[device] += 1
    for device, limit in container.offer.items():
        obstacle = None
        if visible and device not in visible:
            obstacle = Obstacle.HIDDEN
        elif device in state.drained:
            obstacle = Obstacle.DRAINED
        elif limit > ledger.capacity[device]:
            obstacle = Obstacle.CAPACITY
        figures = (ledger.capacity[device], ledger.free[device], promised[device], number[device])
        yield Compared(device, limit, *figures, obstacle)


def _claims(state: State) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield the containers that may use memory, with their limits: they are mounted, or have a process."""
    for name, container in state.containers.items():
        if container.mounted or container.sessions:
            yield name, {device: account.limit for device, account in state.ledger.accounts[name].items()}


def _placed_limits(state: State) -> list[int]:
    return [limit for _, limits in _claims(state) for limit in limits.values()]


def _candidate(position: int, row: Compared) -> Candidate:
    return Candidate(row.device, position, row.limit, row.capacity, row.free, row.promised, row.containers)
