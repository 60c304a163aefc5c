"""How an elastic container stands, for everybody outside of the core: copies that never change."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from convgpu.core.residency.state import Phase, Residence, Turn
from convgpu.core.state import State
from convgpu.core.turns.reasons import InTheWay
from convgpu.core.turns.room import Room


class ResidenceState(StrEnum):
    """What people see of a container whose memory can leave."""

    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    RESTORING = "restoring"
    BUSY = "busy"  # it runs, and did not stop in time
    WAITING = "waiting"  # for its turn


@dataclass(frozen=True, slots=True)
class ResidenceView:
    """One elastic container at one moment; sizes in bytes by device.

    Attributes:
        state: what it does.
        is_suspended: an administrator suspended it.
        is_deep: its contexts leave as well; no more when the driver cannot.
        on_card: its memory on the card, with what is fixed.
        out: on the host.
        fixed: on the card, and cannot leave.
        waits_since: when it began to wait for its card turn, on the clock of the events; None if it does not.
        since: when it got its card turn last.
        due: when it gets it at the latest, because quanta end; None if nobody can say.
        behind: the containers whose ends, or turns, it waits for, the largest first.
        switches: how often it was stopped; `moved_out`, `moved_in`: bytes, since the scheduler knows it.
        drained_in: seconds of its last stop, None without one.
    """

    state: ResidenceState
    is_suspended: bool
    is_deep: bool
    on_card: Mapping[str, int]
    out: Mapping[str, int]
    fixed: Mapping[str, int]
    waits_since: float | None
    since: float
    due: float | None = None
    behind: tuple[str, ...] = ()
    switches: int = 0
    moved_out: int = 0
    moved_in: int = 0
    drained_in: float | None = None


def view_residence(
    state: State, room: Room, in_the_way: InTheWay, name: str, due: float | None
) -> ResidenceView | None:
    """Return how a container stands, None if its memory cannot leave."""
    residence = state.residency.containers.get(name)
    if residence is None:
        return None
    out, on_card, fixed = {}, {}, {}
    movable = room.movable_of(name)
    for device, account in state.ledger.accounts[name].items():
        memories = residence.sessions.values()
        away = sum(memory.out.get(device, 0) + memory.saved.get(device, 0) for memory in memories)
        evicting = sum(memory.evicting.get(device, 0) for memory in memories)
        deferred = sum(p.size for p in state.containers[name].deferred.values() if p.device == device)
        out[device] = away
        on_card[device] = max(account.leased - deferred - away, 0)
        fixed[device] = max(on_card[device] - movable.get(device, 0) - evicting, 0)
    turn = state.residency.turns.get(name)
    is_waiting = turn is not None and not turn.is_admitted
    return ResidenceView(
        _state_of(state, residence, is_waiting=is_waiting),
        residence.is_suspended,
        residence.is_deep,
        on_card,
        out,
        fixed,
        turn.since if turn is not None and is_waiting else None,
        residence.since,
        due,
        _behind(in_the_way, turn) if turn is not None and is_waiting else (),
        residence.switches,
        residence.moved_out,
        residence.moved_in,
        residence.drained_in,
    )


def _behind(in_the_way: InTheWay, turn: Turn) -> tuple[str, ...]:
    found = [name for device in turn.need for name in in_the_way.of(turn, device)]
    return tuple(dict.fromkeys(found))


def _state_of(state: State, residence: Residence, *, is_waiting: bool) -> ResidenceState:
    is_busy = state.now < residence.busy_until
    if is_busy and (residence.phase is Phase.RUNNING or (residence.phase is Phase.STOPPED and not is_waiting)):
        return ResidenceState.BUSY
    if is_waiting and residence.phase in {Phase.RUNNING, Phase.STOPPED}:
        return ResidenceState.WAITING
    return ResidenceState(residence.phase.value)
