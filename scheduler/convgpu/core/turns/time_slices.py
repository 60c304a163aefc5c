"""Whose turn is taken for another: time slices, where not all that want to run fit."""

from math import inf
from typing import Final

from convgpu.core.residency.quantum import least_quantum, quantum, switch_seconds
from convgpu.core.residency.state import Refusal, Sizes, Turn
from convgpu.core.state import State
from convgpu.core.turns.room import Room
from convgpu.core.turns.waiting import is_overdue

LOOK: Final = 0.3  # seconds in which a container that is watched from now on says that it is idle


class TimeSlices:
    """Chooses running containers that have had their quantum.

    Args:
        state: of the machine.
        room: of the cards.
        switch_cost: the share of the time that switches may take.

    Attributes:
        next_end: when the next quantum ends for which somebody waits; infinite without one.
    """

    def __init__(self, state: State, room: Room, switch_cost: float) -> None:
        self._state = state
        self._residency = state.residency
        self._room = room
        self._switch_cost = switch_cost
        self.next_end = inf

    def choose(self, turn: Turn, lacking: Sizes) -> list[str]:
        """Return running containers whose memory is enough for a turn, none if there are not enough.

        Idle ones first, then least priority, and of equals the one that has run the longest.
        `lacking`: bytes by device.
        """
        figures = self._figures(turn, lacking)
        if turn.refusal is not None and self._state.now < turn.refusal.until and turn.refusal.figures == figures:
            self.next_end = min(turn.refusal.until, self.next_end)
            return []
        ended, until = self._preemptible(turn, lacking)
        chosen: list[str] = []
        for name in ended:
            sizes = self._room.sizes[name]
            if any(lacking.get(device, 0) > 0 and size for device, size in sizes.items()):
                chosen.append(name)
                lacking = {device: size - sizes.get(device, 0) for device, size in lacking.items()}
            if all(size <= 0 for size in lacking.values()):
                return chosen
        turn.refusal = Refusal(figures, until)
        return []

    def _figures(self, turn: Turn, lacking: Sizes) -> tuple[object, ...]:
        """Return all, besides time, on which it depends who loses the turn to this one."""
        refreshed = [self._room.refreshed[device] for device in lacking]
        rates = tuple(self._residency.rates.values())
        return turn.priority, is_overdue(self._state, turn), turn.need, lacking, refreshed, rates

    def due(self, turn: Turn, lacking: Sizes) -> float | None:
        """Return when enough running containers have had their quantum for a turn, None if they never have."""
        lacking = {device: size for device, size in lacking.items() if size > 0}
        names = {name: None for device in lacking for name in self._room.running[device]}
        for end, name in sorted((self._quantum_end(name, turn), name) for name in names):
            sizes = self._room.sizes[name]
            lacking = {device: size - sizes.get(device, 0) for device, size in lacking.items()}
            if all(size <= 0 for size in lacking.values()):
                return end if end < inf else None
        return None

    def _preemptible(self, turn: Turn, lacking: Sizes) -> tuple[list[str], float]:
        """Return running containers whose quantum is over, in the order in which they lose it; when the next ends."""
        found, until = [], inf
        candidates = {name: None for device, size in lacking.items() if size > 0 for name in self._room.running[device]}
        for name in candidates:
            end = self._quantum_end(name, turn)
            if end <= self._state.now:
                residence, priority = self._residency.containers[name], self._state.containers[name].priority
                found.append((residence.idle_since is None, priority, residence.since, name))
            else:
                until = min(end, until)
        self.next_end = min(until, self.next_end)
        return [name for *_, name in sorted(found)], until

    def _quantum_end(self, name: str, turn: Turn) -> float:
        """Return when a container may lose its turn to another; one of lower priority has to be overdue for it."""
        residency, need = self._residency, turn.need
        priority = self._state.containers[name].priority
        if turn.priority < priority and not is_overdue(self._state, turn):
            return inf
        switch = 0.0
        for device, size in self._room.sizes[name].items():
            seconds = switch_seconds(size, need.get(device, 0), residency.rates[device])
            switch = max(switch, seconds)
        least = least_quantum(switch) if turn.priority > priority else quantum(switch, self._switch_cost)
        end, seen = residency.containers[name].since + least, residency.watched.get(name, self._state.now) + LOOK
        return max(seen, end)
