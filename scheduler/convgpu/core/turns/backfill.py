"""Who may pass an overdue turn: whoever leaves room for it, whichever of those with a turn pause or end.

The proof is that of allocations (core/allocation/backfill.py), with what leaves a card in place of what is released
(docs/policies.md, Backfill among turns).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain
from math import inf
from typing import Final

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.memory.release_sums import ReleaseSums
from convgpu.core.residency.state import Sizes, Turn
from convgpu.core.state import State
from convgpu.core.turns.room import Room
from convgpu.core.turns.waiting import WaitingTurns

# A round of turns asks after each card, so that fewer sums may be counted than of grants. With so many of them the gap
# from what is lacking to the next one is small, and so who could pass.
_MOST_SUMS: Final = 256

Pieces = tuple[int, int]  # bytes that leave a card when their container pauses, and that leave when it ends


class Occupants:
    """What leaves each card when containers pause or end that do not wait for their turn.

    Of who waits nothing does: what may leave counts as room already, and what is fixed stays until it has run. Counted
    only when somebody asks, and then only of the containers that changed since.

    Attributes:
        changes: by device, how often anything has changed of what leaves it.
    """

    def __init__(self, state: State, room: Room) -> None:
        self._state = state
        self._residency = state.residency
        self._room = room
        self._pieces: dict[str, dict[str, Pieces]] = {device: {} for device in state.residency.devices}
        self._changed: dict[str, None] | None = None  # since it was counted; None: any may have
        self.changes = dict.fromkeys(self._pieces, 0)

    def note(self, name: str) -> None:
        """Take notice of a container whose memory, stance or turn changed."""
        if self._changed is not None:
            self._changed[name] = None
            if len(self._changed) > len(self._state.ledger.accounts):
                self.forget()

    def forget(self) -> None:
        """Take notice that any container may have changed."""
        self._changed = None

    def count(self) -> None:
        """Count anew what leaves with the containers that changed."""
        changed = self._changed
        if changed is None:
            changed = dict.fromkeys((*self._state.ledger.accounts, *chain(*self._pieces.values())))
        for name in changed:
            found = self._pieces_of(name)
            for device, pieces in self._pieces.items():
                if pieces.get(name) != found.get(device):
                    self.changes[device] += 1
                    pieces.pop(name, None)
                    if device in found:
                        pieces[name] = found[device]
        self._changed = {}

    def sizes(self, device: str) -> Mapping[int, int]:
        """Return how many containers leave with each size, whether they pause or end."""
        return Counter(most for size, most in self._pieces[device].values() if size == most)

    def either(self, device: str) -> Collection[Pieces]:
        """Return what leaves with the others when they pause, and when they end."""
        return [(size, most) for size, most in self._pieces[device].values() if size < most]

    def check(self) -> None:
        """Check what was counted.

        Raises:
            InvariantBrokenError: it is not what leaves.
        """
        if self._changed is not None:
            self.count()
            counted = {device: dict(pieces) for device, pieces in self._pieces.items()}
            self.forget()
            self.count()
            if counted != self._pieces:
                raise InvariantBrokenError(f"what leaves is {self._pieces}, recorded is {counted}")

    def _pieces_of(self, name: str) -> dict[str, Pieces]:
        residence, turn = self._residency.containers.get(name), self._residency.turns.get(name)
        accounts = self._state.ledger.accounts.get(name)
        if accounts is None or (residence is not None and self._room.victim_class(name) is not None):
            return {}
        is_admitted = turn is not None and turn.is_admitted
        movable, lacking = Counter(self._room.movable_of(name)), self._room.need(name)
        if is_admitted and residence is not None:
            movable += self._coming(name)
        found = {}
        for device, account in accounts.items():
            size = account.leased - (0 if is_admitted else lacking.get(device, 0))
            if size > 0:
                found[device] = min(movable[device], size) or size, size
        return found

    def _coming(self, name: str) -> Counter[str]:
        """Return what of a container with its turn is to be on its cards, is not, and could leave again."""
        coming: Counter[str] = Counter()
        for pending in self._state.containers[name].deferred.values():
            coming[pending.device] += pending.size
        for memory in self._residency.containers[name].sessions.values():
            coming += Counter(memory.out) + Counter(memory.evicting)
        return coming


class TurnBackfill:
    """Says what of each card others may take without delaying overdue turns, in the present state."""

    def __init__(self, state: State, room: Room, waiting: WaitingTurns) -> None:
        self._waiting = waiting
        self._occupants = Occupants(state, room)
        self._sums = ReleaseSums(self._occupants, _MOST_SUMS)

    def note(self, name: str) -> None:
        """Take notice of a container whose memory, stance or turn changed."""
        self._occupants.note(name)

    def forget(self) -> None:
        """Take notice that any container may have changed."""
        self._occupants.forget()

    def reserve(self, turn: Turn, wanted: set[str], room: Sizes, left: Sizes) -> None:
        """Reduce what others may take of each card, so that it delays a turn on none of them.

        `room`: bytes that containers without a turn can get, `left`: those of them that others may take. Each device is
        regarded by itself: what gives a turn all that it lacks on all of them leaves it that on each of them. A device
        of which not even the least claim is left is not `wanted` any more.
        """
        self._occupants.count()
        for device in wanted.intersection(turn.claims):
            least = self._waiting.least_claim(device)
            left[device] = int(min(left[device], self._beside(device, turn.claims[device] - room[device], least)))
            if left[device] < least:
                wanted.discard(device)

    def _beside(self, device: str, lacking: int, least: float) -> float:
        """Return the most that others may take beside a turn that lacks so many bytes, at least if that is `least`.

        Who could give what it lacks gives the least of at least that: so much more is left, whoever does. If all
        together cannot, then nothing is left.
        """
        if lacking <= 0:
            return -lacking
        if self._sums.release_bound(device, lacking) - lacking < least:
            return 0
        release = self._sums.least_release(device, lacking)
        return max(release - lacking, 0) if release < inf else 0

    def check(self) -> None:
        """Check what was counted.

        Raises:
            InvariantBrokenError: it is wrong.
        """
        self._occupants.check()
