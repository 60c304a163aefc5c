"""Why a container waits for its turn: views for people that change nothing."""

from convgpu.core.allocation.wait_reasons import Wait
from convgpu.core.residency.state import Turn
from convgpu.core.state import State
from convgpu.core.turns.room import Room
from convgpu.protocol.event_kinds import WaitReason


def explain_deferred(state: State, room: Room) -> dict[int, Wait]:
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
        behind = find_behind(state, room, own, device) if own else ()
        waits[pending.event.request] = Wait(_reason(state, device), ahead.get(name, places)[device], behind)
    return waits


def _reason(state: State, device: str) -> WaitReason:
    if state.recovering:
        return WaitReason.RECOVERING
    return WaitReason.DRAINED if device in state.drained else WaitReason.CARD


def find_behind(state: State, room: Room, turn: Turn, device: str) -> tuple[str, ...]:
    """Return the running containers whose ends would make room for a turn, the largest first."""
    if turn.is_admitted:
        return ()
    lacking = turn.need.get(device, 0) - max(room.free(device), 0) - room.total[device]
    accounts = ((name, held[device].leased) for name, held in state.ledger.accounts.items() if device in held)
    movable = room.movable[device]
    holders = [(name, size) for name, size in accounts if size and name not in movable and name != turn.container]
    behind: list[str] = []
    for name, size in sorted(holders, key=lambda holder: (-holder[1], holder[0])):
        if lacking <= 0:
            break
        behind.append(name)
        lacking -= size
    return tuple(behind)
