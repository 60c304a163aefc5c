"""Which containers wait for their turn, what they need, and who has a turn that is not carried out yet."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.residency.state import Phase, Sizes, Turn
from convgpu.core.state import State
from convgpu.core.turns.room import Room
from convgpu.policies.memory import WaitingAllocation

Rank = tuple[int, int, str]  # priority below 0, sequence of the turn, container
Age = tuple[float, int, str]  # since when it waits, sequence of the turn, container

PATIENCE: Final = 4  # starvation timeouts after which a turn is overdue


def overdue_at(state: State, since: float) -> float:
    """Return when who waits for its turn since then becomes overdue."""
    return since + PATIENCE * state.starvation_timeout


def is_overdue(state: State, turn: Turn) -> bool:
    """Return whether nobody may delay a container on its devices any more."""
    return state.now >= overdue_at(state, turn.since)


class WaitingTurns:
    """The turns by device, with sums, kept up to date by container.

    Attributes:
        ranked: by device, the containers without their turn that claim memory of the card when they get it, in the
            order of priority and then of their turns.
        aged: by device, the same in the order in which they become overdue.
        sized: by device, the same in the order of their claims.
        without_claims: containers without their turn that need no memory for it.
        admitted: the containers that have their turn, and are not whole on their cards.
        need: by device, the bytes that all of both lack on the card.
        pledged: by device, the bytes that those with a turn lack.
    """

    def __init__(self, state: State, room: Room) -> None:
        self._state = state
        self._residency = state.residency
        self._room = room
        devices = state.residency.devices
        self.ranked: dict[str, list[Rank]] = {device: [] for device in devices}
        self.aged: dict[str, list[Age]] = {device: [] for device in devices}
        self.sized: dict[str, list[tuple[int, str]]] = {device: [] for device in devices}
        self._places: dict[str, tuple[Rank, Age]] = {}  # of all containers there
        self.without_claims: dict[str, None] = {}
        self.admitted: dict[str, Turn] = {}
        self.need: Sizes = dict.fromkeys(devices, 0)
        self.pledged: Sizes = dict.fromkeys(devices, 0)

    def update(self, name: str) -> None:
        """Let a container begin or end to wait, and compute anew what it needs. The room has been refreshed."""
        turn = self._residency.turns.get(name)
        if turn is not None:
            self._remove(turn)
        if not self._wants_turn(name):
            if turn is not None:
                del self._residency.turns[name]
                self._room.refresh_stance(name)
            return
        if turn is None:
            turn = self._residency.turns[name] = self._make_turn(name)
            self._room.refresh_stance(name)
        turn.need = {device: size for device, size in self._room.need(name).items() if size}
        self._add(turn)

    def admit(self, turn: Turn) -> None:
        """Give a container its turn."""
        self._remove(turn)
        turn.is_admitted = True
        residence = self._residency.containers.get(turn.container)
        if residence is not None and residence.phase is Phase.RUNNING:
            residence.is_preempted = False
            if turn.since < self._state.now:  # it had no turn; an allocation that fits at once begins no new one
                residence.since = self._state.now
        self._room.refresh_stance(turn.container)
        self._add(turn)

    def fits(self, turn: Turn, room: Sizes) -> bool:
        """Return whether all that a container takes on its cards is left of `room` there."""
        for device, claim in turn.claims.items():
            if claim > room[device]:
                return False
        return not self._state.drained or self._state.drained.isdisjoint(turn.need)

    def could_be_free(self) -> Sizes:
        """Return the bytes of each card that containers without a turn can get."""
        return {device: self.could_be_free_on(device) for device in self.pledged}

    def could_be_free_on(self, device: str) -> int:
        """Return the same of one card."""
        return self._room.could_be_free(device) - self.pledged[device]

    def fitting(self, devices: Iterable[str], room: Sizes) -> list[Turn]:
        """Return the containers without their turn that fit in `room` and claim memory of these devices, or none."""
        names = dict(self.without_claims)
        for device in devices:
            sized = self.sized[device]
            names |= dict.fromkeys(name for _, name in sized[: bisect_left(sized, (room[device] + 1, ""))])
        turns = self._residency.turns
        return [turn for name in names if self.fits(turn := turns[name], room)]

    def view(self, turn: Turn) -> WaitingAllocation:
        """Return a container without its turn as memory policies see it: by the device of which it needs most."""
        if turn.view is None:
            device = max(turn.need, key=lambda d: turn.need[d], default=self._residency.devices[0])
            turn.view = WaitingAllocation(
                turn.sequence,
                turn.container,
                turn.order,
                device,
                request=0,
                size=turn.need.get(device, 0),
                since=turn.since,
                priority=turn.priority,
            )
        return turn.view

    def overdue_on(self, device: str) -> Iterator[Turn]:
        """Yield the containers without their turn that are overdue on a device and may get it, the oldest first."""
        for _, _, name in self.aged[device]:
            turn = self._residency.turns[name]
            if not is_overdue(self._state, turn):
                return
            if self.may_get(turn):
                yield turn

    def may_get(self, turn: Turn) -> bool:
        """Return whether others can make room for a turn: not while a device is drained, or has less than it claims."""
        if not self._state.drained.isdisjoint(turn.need):
            return False
        return all(claim <= self._room.card(device) for device, claim in turn.claims.items())

    def newly_overdue_on(self, since: float) -> list[str]:
        """Return the devices on which a container without its turn has become overdue since then."""
        return [device for device in self.aged if self._next_overdue_on(device, since) <= self._state.now]

    def next_overdue(self) -> float:
        """Return when the next container without its turn becomes overdue; infinite if all are."""
        return min((self._next_overdue_on(device, self._state.now) for device in self.aged), default=inf)

    def _next_overdue_on(self, device: str, since: float) -> float:
        """Return when the first becomes overdue that was not then."""
        aged = self.aged[device]
        place = bisect_right(aged, since, key=lambda age: overdue_at(self._state, age[0]))
        return overdue_at(self._state, aged[place][0]) if place < len(aged) else inf

    def check(self) -> None:
        """Compare claims, and their orders, with what they are.

        Raises:
            InvariantBrokenError: one differs.
        """
        claims: dict[str, list[tuple[int, str]]] = {device: [] for device in self.sized}
        for turn in self._residency.turns.values():
            for device in claims if not turn.is_admitted else ():
                claim = turn.need.get(device, 0) + self._room.movable[device].get(turn.container, 0)
                if claim != turn.claims.get(device, 0):
                    raise InvariantBrokenError(f"{turn} claims {claim} of {device}")
                claims[device] += [(claim, turn.container)] if claim else []
        for device, sized in claims.items():
            places = sorted(self._places[name] for _, name in sized)
            ranked, aged = [rank for rank, _ in places], sorted(age for _, age in places)
            if (self.sized[device], self.ranked[device], self.aged[device]) != (sorted(sized), ranked, aged):
                raise InvariantBrokenError(f"the orders of who waits for {device}")

    def least_claim(self, device: str) -> float:
        """Return the least that a container without its turn claims of a card; infinite if none does."""
        sized = self.sized[device]
        return sized[0][0] if sized else inf

    def _add(self, turn: Turn) -> None:
        rank, age = (-turn.priority, turn.sequence, turn.container), (turn.since, turn.sequence, turn.container)
        for device in {**turn.need, **self._room.sizes.get(turn.container, {})}:
            size = turn.need.get(device, 0)
            self.need[device] += size
            if turn.is_admitted:
                self.pledged[device] += size
            elif claim := size + self._room.movable[device].get(turn.container, 0):
                turn.claims[device] = claim
                insort(self.ranked[device], rank)
                insort(self.aged[device], age)
                insort(self.sized[device], (claim, turn.container))
                self._places[turn.container] = rank, age
        if turn.is_admitted:
            self.admitted[turn.container] = turn
        elif not turn.claims:
            self.without_claims[turn.container] = None

    def _remove(self, turn: Turn) -> None:
        name = turn.container
        for device, size in turn.need.items():
            self.need[device] -= size
            self.pledged[device] -= size if name in self.admitted else 0
        for device, claim in turn.claims.items():
            rank, age = self._places[name]
            del self.sized[device][bisect_left(self.sized[device], (claim, name))]
            del self.ranked[device][bisect_left(self.ranked[device], rank)]
            del self.aged[device][bisect_left(self.aged[device], age)]
        turn.claims, turn.view, turn.ends = {}, None, None
        self._places.pop(name, None)
        self.without_claims.pop(name, None)
        self.admitted.pop(name, None)

    def _make_turn(self, name: str) -> Turn:
        container = self._state.containers[name]
        since = min((p.view.since for p in container.deferred.values()), default=self._state.now)
        return Turn(name, self._state.next_arrival(), since, container.order, container.priority)

    def _wants_turn(self, name: str) -> bool:
        container, residence = self._state.containers.get(name), self._residency.containers.get(name)
        if container is None or not container.sessions or (residence is not None and residence.is_suspended):
            return False
        if residence is None:
            return bool(container.deferred)
        is_away = residence.phase is not Phase.RUNNING
        wants_turn = residence.wants_turn or residence.phase is Phase.RESTORING
        return bool(container.deferred) or residence.is_preempted or (is_away and wants_turn)
