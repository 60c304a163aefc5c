"""Whose turn is taken for another: time slices, where not all that want to run fit."""

from collections.abc import Iterable
from math import inf
from typing import Final

from convgpu.core.errors import InvariantBrokenError
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

    def choose(self, turn: Turn, room: Sizes) -> list[str]:
        """Return running containers whose memory is enough for a turn, none if there are not enough.

        Idle ones first, then least priority, and of equals the one that has run the longest.
        `room`: bytes that the turn can get, by device.
        """
        ends = self._ends_for(turn)
        figures = [(room[device], self._room.refreshed[device]) for device in turn.claims]
        if figures == ends.refused and self._state.now < ends.until:
            self.next_end = min(self.next_end, ends.until)
            return []
        lacking = _lacking(turn, room)
        ended, ends.until = self._preemptible(ends, turn, lacking)
        ends.refused = figures
        self.next_end = min(self.next_end, ends.until)
        chosen: list[str] = []
        for name in ended:
            sizes = self._room.sizes[name]
            if any(lacking.get(device, 0) > 0 and size for device, size in sizes.items()):
                chosen.append(name)
                lacking = {device: size - sizes.get(device, 0) for device, size in lacking.items()}
            if all(size <= 0 for size in lacking.values()):
                ends.refused = []
                return chosen
        return []

    def due(self, turn: Turn, room: Sizes) -> float | None:
        """Return when enough running containers have had their quantum for a turn, None if they never have."""
        lacking = {device: size for device, size in _lacking(turn, room).items() if size > 0}
        known = self._known(self._ends_for(turn), turn, lacking)
        for end, name in sorted((end, name) for name, end in known.items()):
            sizes = self._room.sizes[name]
            lacking = {device: size - sizes.get(device, 0) for device, size in lacking.items()}
            if all(size <= 0 for size in lacking.values()):
                return end if end < inf else None
        return None

    def check(self) -> None:
        """Compare the ends that are remembered with what they are.

        Raises:
            InvariantBrokenError: one differs.
        """
        for turn in self._residency.turns.values():
            remembered = turn.ends
            if remembered is None or self._ends_for(turn) is not remembered:
                continue
            for running in (self._room.running[device] for device in turn.claims):
                for name in running.keys() & remembered.known.keys() & self._residency.watched.keys():
                    refresh, end = remembered.known[name]
                    if refresh == running[name] and end != self._quantum_end(name, turn):
                        raise InvariantBrokenError(f"{name} may lose its turn to {turn} at another time than {end}")

    def _preemptible(self, ends: QuantumEnds, turn: Turn, lacking: Sizes) -> tuple[list[str], float]:
        """Return running containers whose quantum is over, in the order in which they lose it; when the next ends."""
        found, until = [], inf
        for name, end in self._known(ends, turn, [device for device, size in lacking.items() if size > 0]).items():
            if end <= self._state.now:
                residence, priority = self._residency.containers[name], self._state.containers[name].priority
                found.append((residence.idle_since is None, priority, residence.since, name))
            elif end < until:
                until = end
        return [name for *_, name in sorted(found)], until

    def _known(self, ends: QuantumEnds, turn: Turn, devices: Iterable[str]) -> dict[str, float]:
        """Return when each container that runs on these devices may lose its turn to another."""
        found = {}
        for device in devices:
            for name, refresh in self._room.running[device].items():
                before, end = ends.known.get(name, (0, 0.0))
                if before != refresh:
                    end = self._quantum_end(name, turn)
                    ends.known[name] = refresh, end
                found[name] = end
        return found

    def _ends_for(self, turn: Turn) -> QuantumEnds:
        is_late, ends, rates = is_overdue(self._state, turn), turn.ends, self._residency.rates
        if ends is None or ends.rates is not rates or ends.is_overdue is not is_late:
            ends = turn.ends = QuantumEnds(rates, is_late)
        return ends

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


def _lacking(turn: Turn, room: Sizes) -> Sizes:
    """Return by device what a turn claims and is not left of `room`; below zero where more is left."""
    return {device: claim - room[device] for device, claim in turn.claims.items()}
