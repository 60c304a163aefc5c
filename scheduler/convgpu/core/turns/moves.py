"""The steps of a move: a container stops, its memory goes out, comes back, and it goes on."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from convgpu.core import events as e
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.residency import events as r
from convgpu.core.residency.state import Checkpointing, Phase, Residence, SessionMemory, Turn
from convgpu.core.state import State
from convgpu.core.step import StepBuilder
from convgpu.core.turns.room import Room, VictimClass
from convgpu.core.turns.waiting import is_overdue
from convgpu.policies.eviction import EvictionPolicy
from convgpu.protocol.event_kinds import EventKind, SuspendReason

DEADLINE: Final = 2.0  # seconds in which a process has to drain
STEP_AFTER: Final = 0.05  # seconds after which drained processes let a submission pass for those that are not
FIRST_BACK_OFF: Final = 5.0
MOST_BACK_OFF: Final = 300.0

_REASONS: Final[Mapping[VictimClass | None, SuspendReason]] = {
    VictimClass.PAUSED: SuspendReason.PAUSED,
    VictimClass.IDLE: SuspendReason.IDLE,
    VictimClass.PREEMPTED: SuspendReason.TURN,
}

Answer = Callable[[PendingAllocation, int | None], None]


class Moves:
    """Carries out what turns decide, one step at a time, as the answers of processes and porter come in.

    Args:
        state: of the machine.
        room: of the cards.
        step: receives what has to be done.
        answer: tells a process that its allocation is made.
        eviction: chooses whose memory leaves first.
    """

    def __init__(self, state: State, room: Room, step: StepBuilder, answer: Answer, eviction: EvictionPolicy) -> None:
        self._state = state
        self._residency = state.residency
        self._room = room
        self._step = step
        self._answer = answer
        self._eviction = eviction

    # -- stopping ----------------------------------------------------------------------------------------

    def stop(self, name: str) -> None:
        """Tell all processes of a container to stop: together, because one may wait for the work of another."""
        residence = self._residency.containers[name]
        residence.why = _REASONS.get(self._room.victim_class(name), SuspendReason.ASKED)
        if residence.is_suspended:
            residence.why = SuspendReason.ASKED
        residence.phase = Phase.STOPPING
        residence.epoch += 1
        residence.asked_at = residence.stepped_at = self._state.now
        residence.suspended_at = self._state.now
        for number, memory in residence.able:
            memory.is_stopped = memory.is_let_go = False
            memory.waiting = 0
            self._step.add(r.Stop(number, residence.epoch, DEADLINE))
        self._changed(name)
        self.finish_stop(name)

    def finish_stop(self, name: str) -> None:
        """Note that a container is stopped once every process that can be is, and no other one holds anything."""
        residence = self._residency.containers[name]
        if residence.phase is Phase.STOPPING and residence.is_stopped and not self._room.runs_on(name):
            residence.phase = Phase.STOPPED
            residence.back_off = 0.0
            self._residency.inexact[name] = None
            residence.switches += 1
            residence.drained_in = self._state.now - residence.suspended_at
            self._record(EventKind.SUSPENDED, name, waited=residence.drained_in, reason=residence.why)
            self._changed(name)

    def give_up(self, name: str) -> None:
        """Let a container that did not stop in time run on, and ask it less and less often."""
        residence = self._residency.containers[name]
        residence.back_off = min(max(2 * residence.back_off, FIRST_BACK_OFF), MOST_BACK_OFF)
        residence.busy_until = self._state.now + residence.back_off
        self._record(EventKind.BUSY, name)
        if residence.has_out:  # it had been stopped, and a process connected since: what is out has to come back
            residence.wants_turn = True
            residence.phase = Phase.STOPPED
            self._changed(name)
        else:
            self._go(name, residence)

    def let_step(self, name: str) -> None:
        """Let a submission of the drained processes pass: those that are not may wait for it."""
        residence = self._residency.containers[name]
        residence.stepped_at = self._state.now
        for number, memory in residence.able:
            if memory.is_stopped and memory.waiting:
                memory.is_stopped = False
                self._step.add(r.Step(number, residence.epoch))

    def watch(self, name: str, *, on: bool) -> None:
        """Have the processes of a container say whether they are idle, or do so no more."""
        residence = self._residency.containers[name]
        residence.idle_since = residence.idle_since if on else None
        for number, _ in residence.able:
            self._step.add(r.Watch(number, on))
        self._residency.changed[name] = None
        self._room.refresh_container(name)

    # -- out ---------------------------------------------------------------------------------------------

    def make_room(self, device: str, lacking: int) -> None:
        """Have `lacking` bytes of a device leave it, of as few containers as possible in the order of their classes."""
        for name in self._victims(device, lacking):
            if lacking <= 0:
                return
            residence = self._residency.containers[name]
            size = min(self._room.movable[device].get(name, 0), lacking)
            if residence.phase is Phase.RUNNING:
                self.stop(name)
            if residence.phase is Phase.STOPPED:
                self.evict(name, device, size)
            lacking -= size

    def _victims(self, device: str, lacking: int) -> Iterator[str]:
        """Yield the containers whose memory may leave: those that are being stopped first, then by class and policy.

        Containers whose turn is overdue come last in their class: it is near.
        """
        classes: dict[tuple[int, bool, bool, int], list[str]] = {}
        for name in self._room.movable[device]:
            residence, turn = self._residency.containers[name], self._residency.turns.get(name)
            is_late = turn is not None and is_overdue(self._state, turn)
            kind = int(self._room.victim_class(name) or VictimClass.PREEMPTED)
            priority = self._state.containers[name].priority
            key = (kind, residence.phase is Phase.RUNNING, is_late, priority)
            classes.setdefault(key, []).append(name)
        for key in sorted(classes):
            victims = [self._room.victim(name, self._room.movable[device][name]) for name in classes[key]]
            yield from (victim.container for victim in self._eviction.rank(victims, lacking))

    def evict(self, name: str, device: str, size: int) -> None:
        """Move bytes of a stopped container out, as far as the host has room."""
        residence = self._residency.containers[name]
        piece = self._residency.piece
        size = -(-size // piece) * piece
        for number, movable in self._room.movable_by_session(name, device).items():
            part = self._residency.whole_pieces(min(movable, max(size, 0)), self._residency.pool_free(device))
            if part:
                memory = residence.sessions[number]
                if not memory.evicting.get(device):
                    memory.pool_then[device] = self._residency.pool[device]
                self._residency.change("evicting", memory, device, part)
                self._step.add(r.Evict(number, residence.epoch, device, part))
                size -= part
        self._changed(name)

    def evict_all(self, name: str) -> None:
        """Move all out of a container that was suspended by hand."""
        residence = self._residency.containers[name]
        for device, size in self._room.movable_of(name).items():
            if size:
                self.evict(name, device, size)
        stands_still = residence.is_stopped and residence.is_known
        if residence.is_deep and stands_still and not any(self._room.movable_of(name).values()):
            self._checkpoint(residence)

    def _checkpoint(self, residence: Residence) -> None:
        for number, memory in residence.able:
            if not any(memory.evicting.values()) and memory.checkpoint is Checkpointing.NONE:
                memory.checkpoint = Checkpointing.TAKING
                self._step.add(r.Checkpoint(number))

    def undo_checkpoint(self, number: int, memory: SessionMemory) -> None:
        """Have contexts come back that left a process which was let go before the porter said so.

        It had connected again meanwhile. What it has counts as on its devices, so there is room.
        """
        if memory.checkpoint is Checkpointing.TAKEN:
            memory.checkpoint = Checkpointing.NONE
            self._step.add(r.RestoreCheckpoint(number))

    # -- back --------------------------------------------------------------------------------------------

    def advance(self, turn: Turn) -> None:
        """Bring a container that has its turn nearer to running: memory back, gates open, allocations answered."""
        residence = self._residency.containers.get(turn.container)
        if residence is not None and residence.phase is Phase.STOPPED:
            residence.phase = Phase.RESTORING
            self._changed(turn.container)
        if residence is not None and residence.phase is Phase.RESTORING and residence.is_known:
            self._restore(turn.container, residence)
            if not residence.has_out:
                self._go(turn.container, residence)
        if residence is None or residence.phase is Phase.RUNNING:
            self._answer_deferred(turn.container)

    def _restore(self, name: str, residence: Residence) -> None:
        """Move back what there is room for; contexts first, because memory is mapped in them."""
        for number, memory in residence.able:
            if memory.checkpoint is not Checkpointing.NONE:
                self._restore_checkpoint(number, memory)
                self._changed(name)
                continue
            for device, out in memory.out.items():
                left = out - memory.restoring.get(device, 0)
                size = self._residency.whole_pieces(left, self._room.free(device))
                if size > 0 and self._state.now >= residence.restore_at:
                    self._residency.change("restoring", memory, device, size)
                    self._step.add(r.Restore(number, residence.epoch, device, size))
                    self._changed(name)

    def _restore_checkpoint(self, number: int, memory: SessionMemory) -> None:
        has_room = all(size <= self._room.free(device) for device, size in memory.saved.items())
        if memory.checkpoint is Checkpointing.TAKEN and has_room:
            memory.checkpoint = Checkpointing.RESTORING
            self._residency.forget(memory, "saved")
            self._step.add(r.RestoreCheckpoint(number))

    def _go(self, name: str, residence: Residence) -> None:
        """Open the gates: everything of the container is on its cards."""
        for number, memory in residence.able:
            memory.is_stopped = False
            memory.is_let_go = True
            memory.waiting = 0
            self._step.add(r.Go(number, residence.epoch))
        if residence.phase is not Phase.STOPPING:
            self._record(EventKind.RESUMED, name, waited=self._state.now - residence.suspended_at)
        residence.phase = Phase.RUNNING
        residence.works = residence.wants_turn and bool(self._state.containers[name].pending)
        residence.wants_turn = residence.is_preempted = False
        residence.since = self._state.now
        residence.idle_since = None
        self._changed(name)

    def _answer_deferred(self, name: str) -> None:
        for pending in list(self._state.containers[name].deferred.values()):
            if pending.size <= self._room.free(pending.device):
                self._state.undefer(pending)
                is_alone = len(self._residency.turns) <= 1 and not self._state.containers[name].deferred
                self._answer(pending, self._room.free(pending.device) if is_alone else 0)

    # -- history -----------------------------------------------------------------------------------------

    def record_moved(self, kind: EventKind, name: str, device: str, size: int) -> None:
        """Count and record bytes that moved."""
        residence = self._residency.containers[name]
        residence.moved_out += size if kind is EventKind.EVICTED else 0
        residence.moved_in += size if kind is EventKind.RESTORED else 0
        self._residency.moved[kind][device] += size
        self._record(kind, name, device, size)

    def _record(
        self,
        kind: EventKind,
        name: str,
        device: str = "",
        size: int = 0,
        waited: float | None = None,
        reason: SuspendReason | None = None,
    ) -> None:
        self._step.add(e.HistoryEntry(kind, name, device, size, 0, waited=waited, reason=reason))

    def _changed(self, name: str) -> None:
        """Count a container anew. What may leave of it is computed before anybody gets a turn."""
        self._residency.changed[name] = None
        self._room.refresh_stance(name)
