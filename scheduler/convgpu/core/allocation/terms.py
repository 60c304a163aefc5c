"""How long allocations of a container may be paused, and its priority: when they begin to wait, and changed then."""

from msgspec.structs import replace

from convgpu.core.allocation.admission import GANG_TIMEOUT
from convgpu.core.allocation.turns import head_start
from convgpu.core.events import TermsChanged
from convgpu.core.state import State


def wait_end(state: State, name: str, since: float) -> float | None:
    """Return when the option `wait` of a container ends the wait of an allocation since then; None without it.

    Nobody is rejected because the scheduler recovered: that time does not count.
    """
    wait = state.containers[name].wait
    return None if wait is None else max(since, state.recovered) + wait


def end_recovery(state: State) -> None:
    """Let the waits of all begin that came during recovery."""
    state.recovering, state.recovered = False, state.now
    for queue in (state.queue, state.deferred):
        for pending in queue:
            queue.postpone(pending, deadline_of(state, pending.container, pending.view.since))


def deadline_of(state: State, name: str, since: float) -> float | None:
    """Return when an allocation of a container is rejected that waits since then; None without an end.

    What waits for others of its gang is looked at again each GANG_TIMEOUT.
    """
    container, end = state.containers[name], wait_end(state, name, since)
    deadlines = [end] if end is not None else []
    if container.gang and state.awaits_admission(name):
        first = max(since, state.recovered) + GANG_TIMEOUT
        deadlines.append(first if first > state.now else state.now + GANG_TIMEOUT)
    return min(deadlines, default=None)


def change_terms(state: State, event: TermsChanged) -> None:
    """Change the terms of a container, and those of its allocations that wait: their ends, and their turns.

    With another turn one may be before what it had gone past, or behind: that backfill delays nobody is not proved any
    more, as after other facts.
    """
    container = state.containers[event.container]
    has_moved = container.priority != event.priority
    container.wait, container.priority = event.wait, event.priority
    ahead = head_start(event.priority, state.starvation_timeout)
    for queue, waiting in ((state.queue, container.pending), (state.deferred, container.deferred)):
        for pending in waiting.values():
            view = replace(pending.view, priority=event.priority, head_start=ahead)
            queue.change_terms(pending, view, deadline_of(state, event.container, view.since))
            state.ledger.changes.release((pending.device,))
    for pending in container.doubted.values():
        pending.view = replace(pending.view, priority=event.priority, head_start=ahead)
    if has_moved:
        state.ledger.claimants.forget_backfilled()
        state.ledger.changes.release(state.ledger.capacity)
        turn = state.residency.turns.get(event.container)
        if turn is not None:
            turn.priority = event.priority
        state.residency.changed[event.container] = None
