"""What is always true of residency (docs/architecture.md); a broken one is a programming error."""

from collections.abc import Iterable

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.residency.state import Phase, SessionMemory
from convgpu.core.state import State
from convgpu.core.turns.backfill import TurnBackfill
from convgpu.core.turns.room import Room
from convgpu.core.turns.waiting import WaitingTurns, is_overdue


def check_residency(state: State, room: Room, waiting: WaitingTurns, backfill: TurnBackfill) -> None:
    """Check sums, phases and turns, after a decision and without facts that came since.

    Raises:
        InvariantBrokenError: a figure is not the sum of its parts, a container runs with memory out, or one waits for
            its turn although it fits and delays nobody.
    """
    _check_sums(state)
    for name, residence in state.residency.containers.items():
        if residence.phase is Phase.RUNNING and residence.has_out:
            raise InvariantBrokenError(f"{name} runs, and memory of it is out: {residence}")
        for number, memory in residence.sessions.items():
            _check_memory(f"session {number} of {name}", memory)
    if not state.recovering:
        _check_turns(state, room, waiting, backfill)


def _check_sums(state: State) -> None:
    residency = state.residency
    memories = [memory for residence in residency.containers.values() for memory in residence.sessions.values()]
    for of in ("out", "evicting", "restoring", "saved"):
        for device, recorded in getattr(residency, of).items():
            total = sum(getattr(memory, of).get(device, 0) for memory in memories)
            if total != recorded:
                raise InvariantBrokenError(f"{of} on {device}: {total}, recorded is {recorded}")
    for device, recorded in residency.deferred.items():
        if recorded != sum(pending.size for pending in state.deferred.on(device)):
            raise InvariantBrokenError(f"allocations that wait for room on {device}: recorded are {recorded} bytes")
    for device, leased in state.ledger.leased.items():
        accounts: Iterable[int] = (
            found.leased for held in state.ledger.accounts.values() if (found := held.get(device)) is not None
        )
        if leased != sum(accounts):
            raise InvariantBrokenError(f"leases on {device}: recorded are {leased} bytes")


def _check_memory(name: str, memory: SessionMemory) -> None:
    for device, size in memory.restoring.items():
        if not 0 <= size <= memory.out.get(device, 0):
            raise InvariantBrokenError(f"{name} restores what is not out: {memory}")
    if any(size < 0 for sizes in (memory.out, memory.evicting, memory.saved) for size in sizes.values()):
        raise InvariantBrokenError(f"{name} has less than nothing: {memory}")


def _check_turns(state: State, room: Room, waiting: WaitingTurns, backfill: TurnBackfill) -> None:
    left = waiting.could_be_free()
    if any(left[device] < 0 for turn in waiting.admitted.values() for device in turn.need):
        raise InvariantBrokenError(f"turns were given for which there is no room: {left}")
    for turn in state.residency.turns.values():
        expected = {device: size for device, size in room.need(turn.container).items() if size}
        if turn.need != expected:
            raise InvariantBrokenError(f"{turn} needs {expected}")
    waiting.check()
    for name, sizes in room.sizes.items():
        if sizes != room.movable_of(name):
            raise InvariantBrokenError(f"{room.movable_of(name)} of {name} may leave, recorded are {sizes}")
    backfill.check()
    waits = [turn for turn in state.residency.turns.values() if not turn.is_admitted]
    for turn in waits:
        if is_overdue(state, turn) and waiting.may_get(turn):
            backfill.reserve(turn, set(left), waiting.could_be_free(), left)
    for turn in waits:
        if waiting.fits(turn, left):
            raise InvariantBrokenError(f"{turn} waits, and fits: {left}")
