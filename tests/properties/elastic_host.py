"""A simulated host whose processes have gates and whose porter moves bytes, and which checks what both see."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from turn_oracle import TurnOracle

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.core.residency.quantum import LEAST
from convgpu.simulate.host import SimulatedHost

FACTS = (e.SessionStarted, e.SessionReconnected, e.CapacityChanged, e.UnleasedMemory, r.SessionState, r.PoolChanged)


@dataclass
class Gate:
    """One process as it is: its gate, what of it is out, and what it was told to do and has not."""

    is_open: bool = True
    is_first: bool = True
    epoch: int = 0
    must_stop: bool = False
    steps: int = 0
    out: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    evicting: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    restoring: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    must_checkpoint: bool = False
    must_restore_checkpoint: bool = False
    is_checkpointed: bool = False


class ElasticHost(SimulatedHost):
    """Carries out effects when the test says so. No decision may overfill a card or the pool, or run what is out."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.turn_oracle = TurnOracle(machine)
        self.gates: dict[int, Gate] = {}
        self.fixed: dict[str, Mapping[str, int]] = {}
        self.pool: dict[str, int] = defaultdict(int)
        self.turn_since: dict[str, float] = {}
        self.stoppable: set[str] = set()  # containers that are idle, or suspended by hand

    # -- what the processes and the porter do --------------------------------------------------------------

    def create_elastic(self, name: str, limits: Mapping[str, int], fixed: int, priority: int = 0) -> None:
        self.create(name, limits, priority=priority)
        self.fixed[name] = {device: min(fixed, limit) for device, limit in limits.items()}
        self.dispatch(r.ElasticSet(name, self.fixed[name]))

    def enable(self, session: int) -> None:
        container = self.processes[session].container
        siblings = [number for number, process in self.processes.items() if process.container == container]
        self.gates[session] = Gate(is_first=siblings == [session])
        self.turn_since.setdefault(container, self.now)
        self.dispatch(r.SessionAble(session, r.Mover.VMM))

    def set_pool(self, device: str, size: int, slack: int) -> None:
        self.pool[device] = size + slack
        self.dispatch(r.PoolChanged(device, size + slack, slack))

    def answer_stop(self, session: int, outcome: r.StopOutcome, waiting: int = 0) -> None:
        gate = self.gates[session]
        gate.must_stop = False
        gate.is_open = outcome is not r.StopOutcome.DRAINED
        fixed = self._fixed_of(session)
        self.dispatch(r.SessionStopped(session, gate.epoch, outcome, waiting, 0.0, fixed))

    def _fixed_of(self, session: int) -> dict[str, int]:
        """The first process of a container holds its fixed share, as far as it has memory."""
        process = self.processes[session]
        if not self.gates[session].is_first or process.container not in self.fixed:
            return {}
        out = self.gates[session].out
        return {d: min(size, process.used[d] - out[d]) for d, size in self.fixed[process.container].items()}

    def move(self, session: int, way: str, device: str, size: int, refused: int = 0) -> None:
        gate = self.gates[session]
        epoch, fixed = gate.epoch, self._fixed_of(session)
        pending = gate.evicting if way == "out" else gate.restoring
        pending[device] -= size + refused
        gate.out[device] += size if way == "out" else -size
        if way == "out":
            self.dispatch(r.Evicted(session, device, size))
        else:
            self.dispatch(r.Restored(session, device, size, refused))
            if size % 2 and gate.is_open:  # it had less out than it was told to restore, and said so before it heard Go
                self.dispatch(r.SessionState(session, epoch, open=False, out={}, fixed=fixed))

    def discard(self, session: int, device: str, size: int) -> None:
        """Free memory that is out. Until its lease is given back it counts as on the card, and may be evicted."""
        self.gates[session].out[device] -= size
        self.dispatch(r.Discarded(session, device, size))
        self.free_stopped(session, size, device)

    def free_stopped(self, session: int, size: int, device: str) -> None:
        """Free memory of a process that is stopped; what was told to leave, and is not there any more, is missing."""
        self.free(session, size, device)
        gate = self.gates[session]
        left = self.processes[session].used[device] - gate.out[device] - self._fixed_of(session).get(device, 0)
        missing = max(gate.evicting[device] - left, 0)
        if missing:
            gate.evicting[device] -= missing
            self.dispatch(r.Evicted(session, device, 0, missing))

    def checkpoint(self, session: int) -> None:
        gate = self.gates[session]
        if gate.must_checkpoint:
            gate.must_checkpoint, gate.is_checkpointed = False, True
            self.dispatch(r.CheckpointTaken(session))
        elif gate.must_restore_checkpoint:
            gate.must_restore_checkpoint = gate.is_checkpointed = False
            self.dispatch(r.CheckpointRestored(session))

    # -- what the machine wants ----------------------------------------------------------------------------

    def dispatch(self, event: e.Event) -> None:
        before = self.excess()
        self.turn_oracle.begin()
        if isinstance(event, r.Idle | r.SuspendAsked):
            self.stoppable.add(event.container)
        elif isinstance(event, r.Busy | r.ResumeAsked):
            self.stoppable.discard(event.container)
        super().dispatch(event)
        for move in self.moves:
            if isinstance(move, r.Stop) and not isinstance(event, FACTS):
                self._check_quantum(move.session)
            self._take_move(move)
        self.moves.clear()
        if not isinstance(event, FACTS):
            after = self.excess()
            assert all(after[key] <= before[key] for key in after), f"{event} made it worse: {before} -> {after}"

    def _check_quantum(self, session: int) -> None:
        """A container that works keeps its card turn for the least quantum."""
        container = self.processes[session].container
        siblings = [number for number, process in self.processes.items() if process.container == container]
        runs = all(self.gates[number].is_open for number in siblings if number in self.gates)
        waits = any(allocation.session in siblings for allocation in self.pending.values())
        if runs and not waits and container not in self.stoppable:
            assert self.now - self.turn_since[container] >= LEAST, (
                f"{container} was stopped before its quantum was over"
            )

    def _take_move(self, move: r.ResidencyEffect) -> None:
        gate = self.gates.setdefault(move.session, Gate())
        match move:
            case r.Stop(_, epoch):
                gate.epoch, gate.must_stop = epoch, True
            case r.Step():
                assert not gate.is_open
                gate.must_stop = True
                gate.steps += 1
            case r.Evict(_, epoch, device, size):
                assert not gate.is_open
                assert epoch == gate.epoch
                assert size > 0
                gate.evicting[device] += size
                used = (
                    self.processes[move.session].used[device]
                    - gate.out[device]
                    - self._fixed_of(move.session).get(device, 0)
                )
                assert gate.evicting[device] <= used, "more is moved than there is"
            case r.Restore(_, _, device, size):
                assert not gate.is_open
                assert size > 0
                assert not gate.is_checkpointed, "memory is mapped without its context"
                gate.restoring[device] += size
                assert gate.restoring[device] <= gate.out[device]
            case r.Go():
                sizes = (*gate.out.values(), *gate.evicting.values(), *gate.restoring.values())
                assert not any(sizes), f"a process runs with memory out: {gate}"
                assert not gate.is_checkpointed
                gate.is_open, gate.must_stop = True, False
                self.turn_since[self.processes[move.session].container] = self.now
            case r.Checkpoint():
                assert not gate.is_open
                gate.must_checkpoint = True
            case r.RestoreCheckpoint():
                gate.must_restore_checkpoint = True

    def _accept(self, effect: e.Accept) -> None:
        super()._accept(effect)
        gate = self.gates.get(effect.session)
        goes = any(isinstance(move, r.Go) and move.session == effect.session for move in self.moves)
        assert gate is None or gate.is_open or goes, "an allocation is made by a process that is stopped"

    # -- what is true --------------------------------------------------------------------------------------

    def on_card(self, device: str) -> int:
        """Bytes of the card that processes use or may use at once."""
        total = 0
        for session, process in self.processes.items():
            gate = self.gates.get(session, Gate())
            if not gate.is_checkpointed:
                total += process.used[device] + process.headroom[device] - gate.out[device] + gate.restoring[device]
        return total

    def out(self, device: str) -> int:
        return sum(gate.out[device] + gate.evicting[device] for gate in self.gates.values())

    def saved(self, device: str) -> int:
        """Bytes that are neither out nor on the card, but where the driver's checkpoint took them."""
        total = 0
        for session in self.checkpointed():
            process = self.processes[session]
            total += process.used[device] + process.headroom[device] - self.gates[session].out[device]
        return total

    def promised(self, device: str) -> int:
        """Bytes that may have been granted to processes that are off the card: they hear of it when they go on."""
        checkpointed = self.checkpointed()
        return sum(a.size for a in self.pending.values() if a.device == device and a.session in checkpointed)

    def checkpointed(self) -> set[int]:
        gates = self.gates.items()
        return {session for session, gate in gates if gate.is_checkpointed and not gate.must_restore_checkpoint}

    def excess(self) -> dict[str, int]:
        """Bytes beyond what a card or the pool has."""
        excess = {}
        for device, view in self.machine.snapshot().devices.items():
            excess[device] = max(self.on_card(device) - view.capacity, 0)
            excess[f"pool of {device}"] = max(self.out(device) - self.pool[device], 0)
        return excess

    def end(self, session: int, *, settled: bool = True) -> None:
        self.gates.pop(session, None)
        super().end(session, settled=settled)

    def reconnect(self, previous: int, held: Mapping[str, int], *, late: bool = False) -> int:
        """Connect again; what was on its way is lost, the gate stays as it is."""
        gate = self.gates.pop(previous, None)
        session = super().reconnect(previous, held, late=late)
        if gate is not None:
            gate.evicting.clear()
            gate.restoring.clear()
            gate.must_stop = False
            self.gates[session] = gate
            self.dispatch(r.SessionAble(session, r.Mover.VMM))
            fixed = self._fixed_of(session)
            self.dispatch(r.SessionState(session, gate.epoch, gate.is_open, dict(gate.out), fixed))
        return session

    def check(self) -> None:
        self.machine.check_invariants(self.now)
        for session, gate in self.gates.items():
            if gate.is_open and not gate.must_stop:
                assert not any(gate.out.values()), f"session {session} runs with memory out: {gate}"
        for device in self.machine.devices:
            out = sum(gate.out[device] for gate in self.gates.values())
            saved = self.machine.out(device) - out
            assert self.saved(device) <= saved <= self.saved(device) + self.promised(device)
        assert {request.request for request in self.machine.waiting} == self.pending.keys()
        assert self.machine.explain(self.now).keys() == self.pending.keys()
