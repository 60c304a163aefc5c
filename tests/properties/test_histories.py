"""No history of containers, allocations, frees and deaths breaks an invariant or forgets a waiting one."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from world import World

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies import POLICIES


class Histories(RuleBasedStateMachine):
    containers = Bundle("containers")
    sessions = Bundle("sessions")

    @initialize(
        capacity=st.lists(st.integers(1, 24), min_size=1, max_size=3),
        policy=st.sampled_from(sorted(POLICIES)),
        patience=st.sampled_from([0.0, 5.0, 60.0]),
    )
    def begin(self, capacity: list[int], policy: str, patience: float) -> None:
        self.capacity = {f"g{number}": size for number, size in enumerate(capacity)}
        chosen = POLICIES[policy](random.Random(1))  # noqa: S311 - a seed that repeats
        self.world = World(Machine(self.capacity, chosen, patience))
        self.count = 0

    @rule(target=containers, data=st.data(), wait=st.sampled_from([None, None, 8.0]))
    def create(self, data: st.DataObject, wait: float | None) -> str:
        self.count += 1
        devices = data.draw(st.sets(st.sampled_from(sorted(self.capacity)), min_size=1))
        limits = {device: data.draw(st.integers(1, self.capacity[device])) for device in sorted(devices)}
        self.world.create(f"c{self.count}", limits, wait)
        return f"c{self.count}"

    @rule(target=sessions, container=containers)
    def start(self, container: str) -> int:
        return self.world.start(container)

    @rule(session=sessions, data=st.data())
    def allocate(self, session: int, data: st.DataObject) -> None:
        if session in self.world.processes:
            account = data.draw(st.sampled_from(sorted(self.accounts(session).items(), key=lambda item: item[0])))
            self.world.allocate(session, data.draw(st.integers(1, account[1].limit + 1)), account[0])

    @rule(session=sessions, data=st.data())
    def free(self, session: int, data: st.DataObject) -> None:
        if session in self.world.processes:
            used = {device: size for device, size in self.world.processes[session].used.items() if size}
            if used:
                device = data.draw(st.sampled_from(sorted(used)))
                self.world.free(session, data.draw(st.integers(1, used[device])), device)

    @rule(session=consumes(sessions))
    def end(self, session: int) -> None:
        if session in self.world.processes:
            self.world.end(session)

    @rule(target=sessions, session=consumes(sessions))
    def reconnect(self, session: int) -> int:
        if session not in self.world.processes:
            return session
        return self.world.resume(session, dict(self.world.processes[session].used))

    @rule(container=containers)
    def finish(self, container: str) -> None:
        self.world.finish(container)

    @rule(container=consumes(containers))
    def remove(self, container: str) -> None:
        self.world.finish(container)
        self.world.happen(e.ContainerRemoved(container))

    @rule(seconds=st.floats(0.1, 20))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        deadline = self.world.machine.next_deadline()
        if deadline is not None and deadline <= self.world.now:
            self.world.happen(e.TimePassed())

    def accounts(self, session: int) -> dict[str, object]:
        return self.world.machine.ledger.accounts[self.world.processes[session].container]

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """Liveness: if everybody who can run ends, everybody is served."""
        if not hasattr(self, "world"):
            return
        while self.world.processes:
            waiting = {asked.session for asked in self.world.open.values()}
            blocked = {self.world.processes[session].container for session in waiting}
            runnable = [s for s, process in self.world.processes.items() if process.container not in blocked]
            assert runnable or not self.world.open, f"deadlock: {self.world.open}"
            for session in runnable:
                self.world.end(session)
            self.world.check()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
