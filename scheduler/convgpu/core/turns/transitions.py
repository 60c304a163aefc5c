"""What each event of residency changes. Who moves because of it, turns decide afterwards."""

from functools import singledispatchmethod
from typing import Final

from convgpu.core.residency import events as r
from convgpu.core.residency.state import Checkpointing, Phase, Residence, SessionMemory
from convgpu.core.state import State
from convgpu.core.turns.moves import Moves
from convgpu.protocol.event_kinds import EventKind

RETRY: Final = 0.05  # seconds after which memory is asked for again that the driver refused


class ResidencyTransitions:
    """One method for each event; `apply` calls the one whose parameter has the event's type.

    An event about a container or process that is not there, or not elastic, changes nothing: it crossed its end.
    """

    def __init__(self, state: State, moves: Moves) -> None:
        self._state = state
        self._residency = state.residency
        self._moves = moves

    @singledispatchmethod
    def apply(self, event: r.ResidencyEvent) -> None:
        """Change the state as the event says.

        Raises:
            TypeError: no method is registered for the type of the event.
        """
        raise TypeError(f"not an event of residency: {event!r}")

    def _find(self, session: int) -> tuple[str, Residence, SessionMemory] | None:
        name = self._state.sessions.get(session, "")
        residence = self._residency.containers.get(name)
        if residence is None:
            return None
        self._residency.changed[name] = None
        return name, residence, residence.sessions[session]

    # -- containers and processes ------------------------------------------------------------------------

    @apply.register
    def _set_elastic(self, event: r.ElasticSet) -> None:
        self._state.unreserved[event.container] = None
        if event.container in self._residency.containers:
            self._residency.containers[event.container].fixed = dict(event.fixed)
            return
        self._residency.containers[event.container] = Residence(dict(event.fixed), epoch=event.epoch)
        self._residency.changed[event.container] = None
        for session, container in self._state.sessions.items():
            if container == event.container:
                self._residency.open_session(container, session)

    @apply.register
    def _set_unified(self, event: r.UnifiedSet) -> None:
        self._state.unreserved[event.container] = None
        self._state.ledger.unified[event.container] = None

    @apply.register
    def _enable_session(self, event: r.SessionAble) -> None:
        """Note that a process can be stopped; if its container is, it has to be.

        With the first one the container is on its cards: its quantum begins, and with no later connection again.
        """
        found = self._find(event.session)
        if found is None:
            return
        name, residence, memory = found
        memory.mover = event.mover
        residence.since = residence.since or self._state.now
        self._residency.watched.pop(name, None)
        if residence.phase is not Phase.RUNNING and memory.is_known:
            self._residency.revoke(name)
            self._moves.stop(name)

    @apply.register
    def _set_state(self, event: r.SessionState) -> None:
        """Believe a process that was stopped by an earlier connection, or by an earlier scheduler.

        One that is let go and has nothing out opens its gate, whatever it said before it read that.
        """
        found = self._find(event.session)
        if found is None:
            return
        name, residence, memory = found
        self._residency.forget(memory, "out", "evicting", "restoring")
        memory.is_known = True
        memory.fixed = dict(event.fixed)
        for device, size in event.out.items():
            if device in self._residency.out:
                self._residency.change("out", memory, device, min(size, self._most_out(name, device)))
        if memory.checkpoint is Checkpointing.TAKEN:  # which a new porter may say before the process says this
            self._count_saved(name, event.session, memory)
        residence.epoch = max(residence.epoch, event.epoch)
        opens = memory.is_let_go and event.epoch == residence.epoch and not any(memory.out.values())
        memory.is_stopped = not event.open and not opens
        self._adapt_phase(name, residence)

    def _adapt_phase(self, name: str, residence: Residence) -> None:
        """Bring the processes of a container together again: all of them run, or none."""
        is_any_stopped = any(memory.is_stopped for _, memory in residence.able)
        if residence.phase is Phase.RUNNING and (is_any_stopped or residence.has_out):
            residence.phase = Phase.STOPPED
            self._residency.inexact[name] = None
            residence.wants_turn = True
            residence.suspended_at = self._state.now
        elif residence.phase is Phase.STOPPING and residence.is_stopped:
            self._moves.finish_stop(name)  # our Stop was of an older epoch than the process's, which does not answer it
        elif residence.phase is not Phase.RUNNING and not residence.is_stopped:
            self._residency.revoke(name)
            self._moves.stop(name)

    # -- stopping ----------------------------------------------------------------------------------------

    @apply.register
    def _note_stopped(self, event: r.SessionStopped) -> None:
        found = self._find(event.session)
        if found is None or event.epoch != found[1].epoch:
            return
        name, residence, memory = found
        memory.fixed = dict(event.fixed)
        self._residency.forget_stuck(name)
        memory.waiting = event.waiting
        residence.wants_turn |= event.waiting > 0
        if residence.phase is not Phase.STOPPING:
            return
        if event.outcome is r.StopOutcome.DRAINED:
            memory.is_stopped = True
            self._measure_drain(name, event.drain)
            self._moves.finish_stop(name)
        else:
            self._moves.give_up(name)

    @apply.register
    def _want_turn(self, event: r.RunWanted) -> None:
        residence = self._residency.containers.get(event.container)
        if residence is not None and residence.phase is not Phase.RUNNING:
            residence.wants_turn = True
            residence.idle_since = None
            self._residency.changed[event.container] = None

    @apply.register
    def _note_idle(self, event: r.Idle) -> None:
        self._set_idle(event.container, event.since)

    @apply.register
    def _note_busy(self, event: r.Busy) -> None:
        self._set_idle(event.container, None)

    def _set_idle(self, container: str, since: float | None) -> None:
        residence = self._residency.containers.get(container)
        if residence is not None:
            residence.idle_since = since
            residence.wants_turn |= since is None and residence.phase is not Phase.RUNNING
            self._residency.changed[container] = None

    # -- bytes -------------------------------------------------------------------------------------------

    @apply.register
    def _note_evicted(self, event: r.Evicted) -> None:
        found = self._find(event.session)
        if found is None:
            return
        name, residence, memory = found
        expected = min(event.size + event.missing, memory.evicting.get(event.device, 0))
        self._residency.change("evicting", memory, event.device, -expected)
        if event.missing:  # freed, which is reported as well; or the host had no room
            self._residency.note_stuck(name, memory, event.device, event.missing)
            if self._residency.pool[event.device] > memory.pool_then.get(event.device, 0):
                self._residency.forget_stuck(name)  # the host has had more since
        is_told = residence.phase is not Phase.RUNNING  # nothing of it is to leave, and what has is not free
        size = min(event.size, self._most_out(name, event.device)) if is_told else 0
        self._residency.change("out", memory, event.device, size)
        if size:
            self._moves.record_moved(EventKind.EVICTED, name, event.device, size)

    def _most_out(self, name: str, device: str) -> int:
        """Return how much more of a container may be out: never more than its limit, whatever its processes say."""
        account = self._state.ledger.accounts[name].get(device)
        out = sum(memory.out.get(device, 0) for memory in self._residency.containers[name].sessions.values())
        return max(account.limit - out, 0) if account is not None else 0

    @apply.register
    def _note_restored(self, event: r.Restored) -> None:
        found = self._find(event.session)
        if found is None:
            return
        name, residence, memory = found
        size = min(event.size, memory.out.get(event.device, 0))
        expected = min(event.size + event.refused, memory.restoring.get(event.device, 0))
        self._residency.change("restoring", memory, event.device, -expected)
        self._residency.change("out", memory, event.device, -size)
        if event.refused:
            residence.restore_at = self._state.now + RETRY
            self._residency.refused[name] = None
        if size:
            self._residency.try_stuck(event.device)
            self._moves.record_moved(EventKind.RESTORED, name, event.device, size)

    @apply.register
    def _note_discarded(self, event: r.Discarded) -> None:
        found = self._find(event.session)
        if found is not None:
            memory = found[2]
            size = min(event.size, memory.out.get(event.device, 0))
            self._residency.change("out", memory, event.device, -size)
            self._residency.try_stuck(event.device)
            above = memory.restoring.get(event.device, 0) - memory.out[event.device]
            self._residency.change("restoring", memory, event.device, -max(above, 0))

    @apply.register
    def _note_checkpoint(self, event: r.CheckpointTaken) -> None:
        """Count what is left of a process as off its devices."""
        found = self._find(event.session)
        if found is None:
            return
        name, residence, memory = found
        if memory.checkpoint in {Checkpointing.TAKEN, Checkpointing.RESTORING}:
            return  # a new porter says it again
        memory.checkpoint = Checkpointing.NONE if event.failed else Checkpointing.TAKEN
        residence.is_deep &= not event.failed
        if residence.phase is Phase.RUNNING and memory.is_known and memory.fixed is not None:  # it said how it stands
            self._moves.undo_checkpoint(event.session, memory)
        elif not event.failed:
            self._count_saved(name, event.session, memory)

    def _count_saved(self, name: str, session: int, memory: SessionMemory) -> None:
        """Count what of a process is neither out nor on its devices; an allocation that waits for room is not there."""
        self._residency.forget(memory, "saved")
        deferred = [pending.event for pending in self._state.containers[name].deferred.values()]
        for device, account in self._state.ledger.accounts[name].items():
            left = account.leases.get(session, 0) - memory.out.get(device, 0)
            left -= sum(event.size for event in deferred if (event.session, event.device) == (session, device))
            self._residency.change("saved", memory, device, max(left, 0))

    @apply.register
    def _note_checkpoint_restored(self, event: r.CheckpointRestored) -> None:
        found = self._find(event.session)
        if found is not None:
            found[2].checkpoint = Checkpointing.NONE

    # -- the host ----------------------------------------------------------------------------------------

    @apply.register
    def _change_pool(self, event: r.PoolChanged) -> None:
        """Have the device hold no more beside its capacity than that; more when allocations are served."""
        ledger = self._state.ledger
        if event.size > self._residency.pool[event.device]:
            self._residency.try_stuck(event.device)
        self._residency.pool[event.device] = event.size
        self._residency.piece = event.piece
        promise = self._residency.promise[event.device] = max(event.size - event.slack, 0)
        ledger.change_pool(event.device, min(ledger.pool[event.device], promise))
        ledger.changes.release((event.device,))

    @apply.register
    def _measure(self, event: r.SwitchMeasured) -> None:
        self._residency.weigh_rate(event.device, "out", event.rate_out)
        self._residency.weigh_rate(event.device, "into", event.rate_in)

    def _measure_drain(self, name: str, seconds: float) -> None:
        for device in self._state.ledger.accounts[name]:
            self._residency.weigh_rate(device, "drain", seconds)

    # -- administrators ----------------------------------------------------------------------------------

    @apply.register
    def _suspend(self, event: r.SuspendAsked) -> None:
        residence = self._residency.containers.get(event.container)
        if residence is not None:
            residence.is_suspended = True
            residence.is_deep = event.deep
            residence.busy_until = 0.0
            self._residency.revoke(event.container)

    @apply.register
    def _resume(self, event: r.ResumeAsked) -> None:
        residence = self._residency.containers.get(event.container)
        if residence is not None and residence.is_suspended:
            residence.is_suspended = residence.is_deep = False
            residence.wants_turn = residence.phase is not Phase.RUNNING
            self._residency.changed[event.container] = None
