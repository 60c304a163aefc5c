"""What backfill among turns promises, checked by trying everything instead of by the scheduler's own proofs."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import inf
from operator import attrgetter

from convgpu.core.machine import Machine
from convgpu.core.residency.state import Turn
from convgpu.core.turns.waiting import is_overdue

MOST_HOLDERS = 6  # of which all pauses and ends are tried
Sizes = Mapping[str, int]


class TurnOracle:
    """Nobody who passes an overdue turn delays it, whichever of those with a turn pause or end (docs/policies.md).

    Attributes:
        passes: how often somebody was given a turn who passed an overdue one.
        late: the containers whose turn is overdue, and of each those whose ends and pauses it waits for at most.
    """

    def __init__(self, machine: Machine) -> None:
        self.passes = 0
        self.late: dict[str, set[str]] = {}
        self._turns = machine._turns
        self._state = machine._state
        self._room = machine._room
        self._waiting = self._turns._waiting
        self._new: set[str] = set()  # containers that were given a turn by the present event
        self._admit = self._waiting.admit
        self._waiting.admit = self._check_and_admit  # type: ignore[method-assign]

    def begin(self) -> None:
        """Take notice that an event comes."""
        self._new.clear()

    def _check_and_admit(self, turn: Turn) -> None:
        order = turn.order if is_overdue(self._state, turn) else inf
        for other in self._overdue():
            if other is turn or not turn.claims.keys() & other.claims.keys():
                continue
            if other.order < order:
                self.passes += 1
                self._check_pass(turn, other)
            else:
                self.late.pop(other.container, None)  # its bound begins anew
        self._new.add(turn.container)
        self._admit(turn)

    def _overdue(self) -> list[Turn]:
        turns = self._state.residency.turns.values()
        return [t for t in turns if not t.is_admitted and is_overdue(self._state, t) and self._could_be_given(t)]

    def _could_be_given(self, turn: Turn) -> bool:
        """Return whether it waits neither for a drained device nor for external memory: then it delays nobody."""
        ledger = self._state.ledger
        is_larger = any(claim > ledger.usable[device] - ledger.pool[device] for device, claim in turn.claims.items())
        return not is_larger and self._state.drained.isdisjoint(turn.need)

    def _check_pass(self, turn: Turn, other: Turn) -> None:
        """No pauses and ends of the others make room for the overdue turn without the one that passes it only."""
        room = self._waiting.could_be_free()
        left = {device: size - turn.claims.get(device, 0) for device, size in room.items()}
        gains = [self._gains(name) for name in self._holders() if name not in {turn.container, other.container}]
        gains = [gain for gain in gains if len(gain) > 1]
        if len(gains) > MOST_HOLDERS:
            return
        for chosen in product(*gains):
            if self._fits(other, room, chosen):
                assert self._fits(other, left, chosen), f"{turn} delays {other}: {room}, {chosen}"

    @staticmethod
    def _fits(turn: Turn, room: Sizes, gains: tuple[Sizes, ...]) -> bool:
        return all(
            claim <= room[device] + sum(gain.get(device, 0) for gain in gains) for device, claim in turn.claims.items()
        )

    def _holders(self) -> Iterator[str]:
        """Yield those who could make room: not who waits, and not who has been given a turn behind others just now."""
        for name in self._state.ledger.accounts:
            is_elastic = name in self._state.residency.containers
            if name not in self._new and not (is_elastic and self._room.victim_class(name) is not None):
                yield name

    def _gains(self, name: str) -> list[Sizes]:
        """Return what a container gives when it stays, pauses and ends."""
        turn, need = self._state.residency.turns.get(name), self._room.need(name)
        is_admitted = turn is not None and turn.is_admitted
        accounts = self._state.ledger.accounts[name]
        ends = {d: account.leased - (0 if is_admitted else need.get(d, 0)) for d, account in accounts.items()}
        pauses = {device: size - self._fixed(name, device) for device, size in ends.items()}
        found: list[Sizes] = [{}]
        return found + [gain for gain in (pauses, ends) if any(gain.values())]

    def _fixed(self, name: str, device: str) -> int:
        residence = self._state.residency.containers.get(name)
        leases = self._state.ledger.accounts[name][device].leases
        if residence is None:
            return sum(leases.values())
        fixed = 0
        for number, lease in leases.items():
            memory = residence.sessions[number]
            own = self._room._fixed(residence, memory, device) + memory.stuck.get(device, 0)
            movable = lease - own - memory.saved.get(device, 0)
            fixed += lease - max(movable if memory.mover is not None and memory.is_known else 0, 0)
        return fixed

    def follow(self) -> None:
        """Check the bound after an event without facts: who is overdue waits for a pause or end of each once."""
        overdue = sorted(self._overdue(), key=attrgetter("order"))
        bounds: dict[str, set[str]] = {}
        for place, turn in enumerate(overdue):
            if any(earlier.claims.keys() & turn.claims.keys() for earlier in overdue[:place]):
                continue  # its bound begins with its place
            holders = {name for name in self._holders_on(turn) if name != turn.container}
            bounds[turn.container] = self.late.get(turn.container, holders) & holders
            assert bounds[turn.container], f"nobody is in the way of {turn}"
        self.late = bounds

    def _holders_on(self, turn: Turn) -> Iterator[str]:
        self._new.clear()
        for name in self._holders():
            if any(gain.get(device) for gain in self._gains(name) for device in turn.claims):
                yield name
