"""No history of containers whose memory can leave breaks an invariant, and none of them is stopped for ever.

Processes answer when the test says so, drained or busy; the porter moves bytes in parts and in any order; connections
are lost on the way. `ElasticHost` counts every byte a second time. At the end every process that can run ends, and
then every allocation has to have been served and every gate be open.
"""

import os

from elastic_host import ElasticHost
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from rounds import rounds

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import make_policy

EXAMPLES = int(os.environ.get("CONVGPU_EXAMPLES", rounds(40, few=15)))
PHASES = [phase for phase in Phase if phase is not Phase.shrink or "CONVGPU_SHRINK" in os.environ]
DRAW = st.data()


class Residency(RuleBasedStateMachine):
    """Sizes are small numbers, so that they meet."""

    policy_name = "best-fit"

    @initialize(
        devices=st.integers(1, 3),
        threshold=st.sampled_from([1, 2, 2, 3]),
        starvation_timeout=st.sampled_from([1.0, 60.0]),
    )
    def begin(self, devices: int, threshold: int, starvation_timeout: float) -> None:
        self.capacity = {f"g{number}": 12 for number in range(devices)}
        machine = Machine(self.capacity, make_policy(self.policy_name, seed=1), starvation_timeout)
        self.host = ElasticHost(machine)
        for device in self.capacity:
            self.host.set_pool(device, (threshold - 1) * 12, 1)
        self.count = 0

    # -- containers and processes ---------------------------------------------------------------------------

    @rule(
        data=DRAW, priority=st.integers(-1, 1), fixed=st.sampled_from([0, 0, 1]), processes=st.sampled_from([1, 1, 2])
    )
    def create(self, data: st.DataObject, priority: int, fixed: int, processes: int) -> None:
        self.count += 1
        devices = data.draw(st.sets(st.sampled_from(sorted(self.capacity)), min_size=1))
        limits = {device: data.draw(st.integers(2, 10)) for device in sorted(devices)}
        self.host.create_elastic(f"c{self.count}", limits, fixed, priority)
        for _ in range(processes):
            self.host.enable(self.host.start(f"c{self.count}"))
            self.allocate(data)

    @precondition(lambda self: self.host.processes)
    @rule(data=DRAW)
    def allocate(self, data: st.DataObject) -> None:
        session = self.session(data, can_run=True)
        if session is None or any(asked.session == session for asked in self.host.pending.values()):
            return
        accounts = self.host.machine.accounts(self.host.processes[session].container)
        device = data.draw(st.sampled_from(sorted(accounts)))
        self.host.allocate(session, data.draw(st.integers(1, max(accounts[device].limit // 2, 1))), device)

    @precondition(lambda self: self.host.processes)
    @rule(data=DRAW)
    def free(self, data: st.DataObject) -> None:
        session = self.session(data, can_run=False)
        assert session is not None
        gate = self.host.gates[session]
        for device, used in list(self.host.processes[session].used.items()):
            if size := gate.out[device] - gate.restoring[device]:
                self.host.discard(session, device, data.draw(st.integers(1, size)))
                return
            on_card = used - gate.out[device]
            if on_card and not gate.is_checkpointed:
                free = self.host.free if gate.is_open else self.host.free_stopped
                free(session, data.draw(st.integers(1, on_card)), device)
                return

    @precondition(lambda self: self.host.processes)
    @rule(data=DRAW)
    def end(self, data: st.DataObject) -> None:
        session = self.session(data, can_run=False)
        assert session is not None
        self.host.end(session)

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW)
    def remove(self, data: st.DataObject) -> None:
        self.host.remove(data.draw(st.sampled_from(sorted(self.host.terms))))

    @precondition(lambda self: self.host.processes)
    @rule(data=DRAW)
    def reconnect(self, data: st.DataObject) -> None:
        session = self.session(data, can_run=False)
        assert session is not None
        self.host.reconnect(session, dict(self.host.processes[session].used))

    # -- what processes and porter answer ---------------------------------------------------------------------

    @precondition(lambda self: any(gate.must_stop for gate in self.host.gates.values()))
    @rule(
        data=DRAW,
        outcome=st.sampled_from([r.StopOutcome.DRAINED] * 3 + [r.StopOutcome.BUSY]),
        waiting=st.integers(0, 1),
    )
    def answer_stop(self, data: st.DataObject, outcome: r.StopOutcome, waiting: int) -> None:
        asked = [session for session, gate in self.host.gates.items() if gate.must_stop]
        self.host.answer_stop(data.draw(st.sampled_from(asked)), outcome, waiting)

    @precondition(lambda self: self.moves())
    @rule(data=DRAW, refused=st.booleans())
    def move(self, data: st.DataObject, refused: bool) -> None:
        session, way, device, size = data.draw(st.sampled_from(self.moves()))
        part = data.draw(st.integers(1, size))
        self.host.move(session, way, device, part, size - part if refused and way == "in" else 0)

    @rule(data=DRAW)
    def move_or_answer(self, data: st.DataObject) -> None:
        if self.moves():
            self.move(data, refused=False)
        elif any(gate.must_stop for gate in self.host.gates.values()):
            self.answer_stop(data, r.StopOutcome.DRAINED, 1)

    @precondition(lambda self: any(not gate.is_open for gate in self.host.gates.values()))
    @rule(data=DRAW)
    def want_turn(self, data: st.DataObject) -> None:
        closed = sorted({self.host.processes[s].container for s, gate in self.host.gates.items() if not gate.is_open})
        self.host.dispatch(r.RunWanted(data.draw(st.sampled_from(closed))))

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW, idle=st.booleans())
    def idle(self, data: st.DataObject, idle: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.host.terms)))
        self.host.dispatch(r.Idle(name, self.host.now) if idle else r.Busy(name))

    @rule()
    def checkpoint(self) -> None:
        for session in list(self.host.gates):
            self.host.checkpoint(session)

    # -- administrators, facts, time ----------------------------------------------------------------------------

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW, resumes=st.booleans(), deep=st.booleans())
    def suspend_or_resume(self, data: st.DataObject, resumes: bool, deep: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.host.terms)))
        self.host.dispatch(r.ResumeAsked(name) if resumes else r.SuspendAsked(name, deep))

    @rule(data=DRAW, capacity=st.integers(8, 12))
    def change_capacity(self, data: st.DataObject, capacity: int) -> None:
        self.host.dispatch(e.CapacityChanged(data.draw(st.sampled_from(sorted(self.capacity))), capacity))

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW, size=st.integers(0, 9))
    def may_be_kept(self, data: st.DataObject, size: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.host.terms)))
        device = data.draw(st.sampled_from(sorted(self.host.machine.accounts(name))))
        self.host.dispatch(e.MayBeKept(name, device, size))

    @rule(data=DRAW, drained=st.booleans())
    def drain(self, data: st.DataObject, drained: bool) -> None:
        self.host.dispatch(e.DeviceDrained(data.draw(st.sampled_from(sorted(self.capacity))), drained))

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.host.now += seconds
        deadline = self.host.machine.next_deadline()
        if deadline is not None and deadline <= self.host.now:
            self.host.dispatch(e.TimePassed())

    # -- what is drawn from ---------------------------------------------------------------------------------------

    def session(self, data: st.DataObject, *, can_run: bool) -> int | None:
        found = [s for s in self.host.processes if not can_run or self.host.gates[s].is_open]
        return data.draw(st.sampled_from(found)) if found else None

    def moves(self) -> list[tuple[int, str, str, int]]:
        found = []
        for session, gate in self.host.gates.items():
            for way, sizes in (("out", gate.evicting), ("in", gate.restoring)):
                found += [(session, way, device, size) for device, size in sizes.items() if size]
        return found

    # -- what must be true ----------------------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "host"):
            self.host.check()

    def teardown(self) -> None:
        """Liveness: when the facts are undone and every process that can run ends, every allocation is served."""
        if not hasattr(self, "host"):
            return
        for device in self.capacity:
            self.host.dispatch(e.CapacityChanged(device, 12))
            self.host.dispatch(e.DeviceDrained(device, drained=False))
        for name in self.host.terms:
            self.host.dispatch(r.ResumeAsked(name))
            self.host.dispatch(r.Busy(name))
        while self.host.processes:
            self.settle()
            runnable = self.runnable()
            assert runnable, f"nobody can run: {self.host.gates}, {self.host.pending}"
            for session in runnable:
                self.host.end(session)

    def runnable(self) -> list[int]:
        """The processes of containers that are not stopped and wait for nothing."""
        blocked = {self.host.processes[asked.session].container for asked in self.host.pending.values()}
        closed = {self.host.processes[s].container for s, gate in self.host.gates.items() if not gate.is_open}
        return [s for s, process in self.host.processes.items() if process.container not in blocked | closed]

    def settle(self) -> None:
        """Answer all that is asked, until nothing is asked any more."""
        for _ in range(400):
            if moves := self.moves():
                self.host.move(*moves[0])
            elif asked := [session for session, gate in self.host.gates.items() if gate.must_stop]:
                self.host.answer_stop(asked[0], r.StopOutcome.DRAINED, 1)
            elif any(gate.must_checkpoint or gate.must_restore_checkpoint for gate in self.host.gates.values()):
                self.checkpoint()
            elif (deadline := self.host.machine.next_deadline()) is not None and deadline <= self.host.now + 400:
                if self.runnable():
                    return  # time only takes turns from now on
                self.host.now = max(deadline, self.host.now)
                self.host.dispatch(e.TimePassed())
            else:
                return
            self.host.check()


def residency(name: str) -> type:
    machine = type(f"Residency {name}", (Residency,), {"policy_name": name})
    machine.TestCase.settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=50,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
        report_multiple_bugs=False,
        deadline=None,
    )
    return machine.TestCase


TestBestFit = residency("best-fit")
TestFifo = residency("fifo")
