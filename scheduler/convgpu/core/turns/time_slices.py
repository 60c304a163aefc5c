"""Whose turn is taken for another: time slices, where not all that want to run fit."""

from collections.abc import Iterable
from math import inf
from typing import Final

from convgpu.core.residency.quantum import least_quantum, quantum, switch_seconds
from convgpu.core.residency.state import QuantumEnds, Sizes, Turn
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
        ends = self._ends_for(turn)
        figures = {device: (size, self._room.refreshed[device]) for device, size in lacking.items()}
        if self._state.now < ends.until and ends.refused == figures:
            self.next_end = min(self.next_end, ends.until)
            return []
        ended, ends.until = self._preemptible(turn, lacking)
        ends.refused = figures
        self.next_end = min(self.next_end, ends.until)
        chosen: list[str] = []
        for name in ended:
            sizes = self._room.sizes[name]
            if any(lacking.get(device, 0) > 0 and size for device, size in sizes.items()):
                chosen.append(name)
                lacking = {device: size - sizes.get(device, 0) for device, size in lacking.items()}
            if all(size <= 0 for size in lacking.values()):
                ends.refused = {}
                return chosen
        return []

    def due(self, turn: Turn, lacking: Sizes) -> float | None:
        """Return when enough running containers have had their quantum for a turn, None if they never have."""
        lacking = {device: size for device, size in lacking.items() if size > 0}
        for end, name in sorted((end, name) for name, end in self._ends(turn, lacking).items()):
            sizes = self._room.sizes[name]
            lacking = {device: size - sizes.get(device, 0) for device, size in lacking.items()}
            if all(size <= 0 for size in lacking.values()):
                return end if end < inf else None
        return None

    def _preemptible(self, turn: Turn, lacking: Sizes) -> tuple[list[str], float]:
        """Return running containers whose quantum is over, in the order in which they lose it; when the next ends."""
        found, until = [], inf
        for name, end in self._ends(turn, [device for device, size in lacking.items() if size > 0]).items():
            if end <= self._state.now:
                residence, priority = self._residency.containers[name], self._state.containers[name].priority
                found.append((residence.idle_since is None, priority, residence.since, name))
            elif end < until:
                until = end
        return [name for *_, name in sorted(found)], until

    def _ends(self, turn: Turn, devices: Iterable[str]) -> dict[str, float]:
        """Return when each container that runs on these devices may lose its turn to another."""
        known, ends = self._ends_for(turn).known, {}
        for device in devices:
            for name, refresh in self._room.running[device].items():
                before, end = known.get(name, (0, 0.0))
                if before != refresh:
                    end = self._quantum_end(name, turn)
                    known[name] = refresh, end
                ends[name] = end
        return ends

    def _ends_for(self, turn: Turn) -> QuantumEnds:
        figures = (turn.priority, is_overdue(self._state, turn), turn.need, *self._residency.rates.values())
        if turn.ends.figures != figures:
            turn.ends = QuantumEnds(figures)
        return turn.ends

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
