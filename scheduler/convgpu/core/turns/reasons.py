"""Why a container waits for its turn: views for people that change nothing."""

from convgpu.core.allocation.wait_reasons import Wait
from convgpu.core.residency.state import Turn
from convgpu.core.state import State
from convgpu.core.turns.room import Room
from convgpu.protocol.event_kinds import WaitReason


class InTheWay:
    """The containers whose ends would make room for a turn.

    Who holds what cannot leave is found once for all that ask between two events.
    """

    def __init__(self, state: State, room: Room) -> None:
        self._state = state
        self._room = room
        self._holders: dict[str, list[tuple[str, int]]] = {}  # by device, largest first, as far as anybody asked

    def forget(self) -> None:
        """Forget everything: an event changes it."""
        self._holders.clear()

    def of(self, turn: Turn, device: str) -> tuple[str, ...]:
        """Return the running containers whose ends would make room for a turn, the largest first."""
        if turn.is_admitted:
            return ()
        lacking = turn.need.get(device, 0) - max(self._room.free(device), 0) - self._room.total[device]
        behind: list[str] = []
        for name, size in self._holders_of(device):
            if lacking <= 0:
                break
            if name != turn.container:
                behind.append(name)
                lacking -= size
        return tuple(behind)

    def _holders_of(self, device: str) -> list[tuple[str, int]]:
        """Return which containers lease how many bytes of a device that may not leave it."""
        found = self._holders.get(device)
        if found is None:
            ledger, movable = self._state.ledger, self._room.movable[device]
            accounts = ((name, ledger.accounts[name].get(device)) for name in ledger.holders if name not in movable)
            found = [(name, account.leased) for name, account in accounts if account is not None and account.leased]
            found.sort(key=lambda holder: (-holder[1], holder[0]))
            self._holders[device] = found
        return found


def explain_deferred(state: State, in_the_way: InTheWay) -> dict[int, Wait]:
    """Return why each allocation waits that is granted and has no room on the card, by the number of its request."""
    places: dict[str, int] = dict.fromkeys(state.residency.devices, 0)
    ahead: dict[str, dict[str, int]] = {}
    for turn in state.residency.turns.values():
        ahead[turn.container] = dict(places)
        for device in turn.need:
            places[device] += 1
    waits: dict[int, Wait] = {}
    for pending in state.deferred:
        name, device = pending.container, pending.device
        own = state.residency.turns.get(name)  # none while an administrator has suspended it
        behind = in_the_way.of(own, device) if own else ()
        waits[pending.event.request] = Wait(_reason(state, device), ahead.get(name, places)[device], behind)
    return waits


def _reason(state: State, device: str) -> WaitReason:
    if state.recovering:
        return WaitReason.RECOVERING
    return WaitReason.DRAINED if device in state.drained else WaitReason.CARD
