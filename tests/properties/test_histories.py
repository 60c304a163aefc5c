"""No history of what containers, processes, drivers, administrators and dying schedulers do breaks an invariant.

`World.dispatch` and `World.check` hold the machine against rules and a second book after every step. At the end of each
history: if the foreign memory goes and everybody who can run ends, everybody is served.

CONVGPU_EXAMPLES=5000 in the environment looks deeper; CONVGPU_SHRINK=1 makes a failing history small.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from world import World

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import POLICIES, make_policy

EXAMPLES = int(os.environ.get("CONVGPU_EXAMPLES", "60"))
# To make a history small takes minutes, so it has to be asked for.
PHASES = [phase for phase in Phase if phase is not Phase.shrink or "CONVGPU_SHRINK" in os.environ]
DRAW = st.data()


class Histories(RuleBasedStateMachine):
    """Sizes are small numbers, so that they meet; sessions and containers are drawn from those that are there."""

    policy_name = "best-fit"

    @initialize(
        capacity=st.one_of(*(st.lists(st.integers(6, 24), min_size=n, max_size=n) for n in (1, 1, 2, 2, 3, 8))),
        starvation_timeout=st.sampled_from([0.0, 5.0, 60.0]),
    )
    def begin(self, capacity: list[int], starvation_timeout: float) -> None:
        self.capacity = {f"g{number}": size for number, size in enumerate(capacity)}
        self.starvation_timeout = starvation_timeout
        self.world = World(Machine(self.capacity, make_policy(self.policy_name, seed=1), starvation_timeout))
        self.count = 0
        self.late_facts = False

    # -- containers and processes -------------------------------------------------------------------------

    @rule(data=DRAW, wait=st.sampled_from([None, None, 8.0]), priority=st.integers(-1, 1), at_once=st.booleans())
    def create(self, data: st.DataObject, wait: float | None, priority: int, at_once: bool) -> None:
        self.count += 1
        devices = data.draw(st.sets(st.sampled_from(sorted(self.capacity)), min_size=1, max_size=3))
        limits = {device: data.draw(st.integers(1, self.capacity[device])) for device in sorted(devices)}
        self.world.create(f"c{self.count}", limits if at_once else {}, wait, priority)
        if not at_once:
            self.world.dispatch(e.LimitsSet(f"c{self.count}", limits))

    @precondition(lambda self: self.world.terms)
    @rule(data=DRAW)
    def start(self, data: st.DataObject) -> None:
        self.world.start(self.container(data))

    @rule(data=DRAW)
    def arrive(self, data: st.DataObject) -> None:
        """What happens most: a container comes, and takes a part of its limit."""
        self.create(data, None, 0, at_once=True)
        session = self.world.start(f"c{self.count}")
        device, account = data.draw(st.sampled_from(sorted(self.accounts(session).items(), key=lambda item: item[0])))
        self.world.allocate(session, data.draw(st.integers(1, account.limit)), device)

    @precondition(lambda self: self.present())
    @rule(data=DRAW)
    def allocate_again(self, data: st.DataObject) -> None:
        self.allocate(data)

    @precondition(lambda self: self.present())
    @rule(data=DRAW)
    def allocate(self, data: st.DataObject) -> None:
        session = self.session(data)
        device, account = data.draw(st.sampled_from(sorted(self.accounts(session).items(), key=lambda item: item[0])))
        self.world.allocate(session, data.draw(st.integers(1, account.limit + 1)), device)

    @precondition(lambda self: any(any(self.world.processes[session].used.values()) for session in self.present()))
    @rule(data=DRAW)
    def free(self, data: st.DataObject) -> None:
        used = [
            (session, device, size)
            for session, process in self.world.processes.items()
            if session not in self.world.absent
            for device, size in process.used.items()
            if size
        ]
        session, device, size = data.draw(st.sampled_from(used))
        self.world.free(session, data.draw(st.integers(1, size)), device)

    @precondition(lambda self: self.present())
    @rule(data=DRAW, settled=st.booleans())
    def end(self, data: st.DataObject, settled: bool) -> None:
        self.world.end(self.session(data), settled=settled)

    @precondition(lambda self: self.world.unsettled)
    @rule(data=DRAW)
    def settle(self, data: st.DataObject) -> None:
        self.world.settle(data.draw(st.sampled_from(sorted(self.world.unsettled))))

    @precondition(lambda self: self.present())
    @rule(data=DRAW)
    def reconnect(self, data: st.DataObject) -> None:
        session = self.session(data)
        self.world.resume(session, dict(self.world.processes[session].used))

    @precondition(lambda self: self.world.terms)
    @rule(data=DRAW, way=st.sampled_from(["mount", "unmount", "finish", "remove"]))
    def mount_or_end(self, data: st.DataObject, way: str) -> None:
        getattr(self.world, way)(self.container(data))

    @rule(seconds=st.floats(0.1, 20))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        deadline = self.world.machine.next_deadline()
        if deadline is not None and deadline <= self.world.now:
            self.world.dispatch(e.TimePassed())

    # -- administrators and facts ---------------------------------------------------------------------------

    @precondition(lambda self: self.world.terms)
    @rule(data=DRAW)
    def change_limit(self, data: st.DataObject) -> None:
        name, device = self.account(data)
        self.world.dispatch(e.LimitsChanged(name, {device: data.draw(st.integers(1, self.capacity[device]))}))

    @rule(name=st.sampled_from(sorted(POLICIES)))
    def choose_policy(self, name: str) -> None:
        self.world.dispatch(e.PolicyChosen(name, seed=1))

    @rule(data=DRAW, drained=st.booleans())
    def drain(self, data: st.DataObject, drained: bool) -> None:
        self.world.dispatch(e.DeviceDrained(self.device(data), drained))

    @rule(data=DRAW)
    def change_capacity(self, data: st.DataObject) -> None:
        device = self.device(data)
        self.world.dispatch(e.CapacityChanged(device, data.draw(st.integers(0, self.capacity[device]))))

    @precondition(lambda self: self.world.terms)
    @rule(data=DRAW, size=st.integers(0, 12))
    def overuse(self, data: st.DataObject, size: int) -> None:
        self.world.dispatch(e.UnleasedMemory(*self.account(data), size))

    # -- the scheduler dies -----------------------------------------------------------------------------------

    @precondition(lambda self: not self.world.machine.recovering)
    @rule(name=st.sampled_from(sorted(POLICIES)))
    def restart(self, name: str) -> None:
        self.world.restart(Machine(self.capacity, make_policy(name, seed=1), self.starvation_timeout, recovering=True))

    @precondition(lambda self: self.world.lost)
    @rule(data=DRAW)
    def come_back(self, data: st.DataObject) -> None:
        self.world.come_back(data.draw(st.integers(0, len(self.world.lost) - 1)))

    @precondition(lambda self: self.world.lost and self.world.machine.recovering)
    @rule(data=DRAW)
    def guess(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.world.lost) - 1))
        used = self.world.lost[place].used
        self.world.guess(place, {device: data.draw(st.integers(0, size + 1)) for device, size in used.items()})

    @precondition(lambda self: self.world.absent)
    @rule(data=DRAW)
    def come_back_late(self, data: st.DataObject) -> None:
        self.world.come_back_late(data.draw(st.sampled_from(sorted(self.world.absent))))

    @precondition(lambda self: self.world.machine.recovering)
    @rule()
    def recovery_ends(self) -> None:
        # What they hold may be granted to others before they come back.
        self.late_facts |= bool(self.world.lost or self.world.absent)
        self.world.dispatch(e.RecoveryEnded())

    # -- what is drawn from -----------------------------------------------------------------------------------

    def container(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.world.terms)))

    def session(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.present())))

    def present(self) -> set[int]:
        return self.world.processes.keys() - self.world.absent.keys()

    def device(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.capacity)))

    def account(self, data: st.DataObject) -> tuple[str, str]:
        name = self.container(data)
        return name, data.draw(st.sampled_from(sorted(self.world.machine.ledger.accounts[name])))

    def accounts(self, session: int) -> dict[str, object]:
        return self.world.machine.ledger.accounts[self.world.processes[session].container]

    # -- what must be true --------------------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """Liveness: when the facts are undone and everybody who can run ends, everybody is served."""
        if not hasattr(self, "world"):
            return
        self.undo_facts()
        deficit = sum(self.world.machine.ledger.deficit.values())
        assert deficit == sum(self.world.machine.ledger.nominal_deficit.values())
        assert not deficit or self.late_facts, "the deficit is not gone with what made it"
        while self.world.processes and not deficit:
            waiting = {asked.session for asked in self.world.open.values()}
            blocked = {self.world.processes[session].container for session in waiting}
            runnable = [s for s, process in self.world.processes.items() if process.container not in blocked]
            assert runnable or not self.world.open, f"deadlock: {self.world.open}"
            for session in runnable:
                self.world.end(session)
            self.world.check()

    def undo_facts(self) -> None:
        while self.world.lost:
            self.world.come_back(0)
        for session in list(self.world.absent):
            self.world.come_back_late(session)
        self.world.dispatch(e.RecoveryEnded())
        for name, accounts in self.world.machine.ledger.accounts.items():
            for device in accounts:
                self.world.dispatch(e.UnleasedMemory(name, device, 0))
        for device, capacity in self.capacity.items():
            self.world.dispatch(e.CapacityChanged(device, capacity))
            self.world.dispatch(e.DeviceDrained(device, drained=False))
        self.world.check()


def histories(name: str) -> type:
    machine = type(f"Histories {name}", (Histories,), {"policy_name": name})
    machine.TestCase.settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=50,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
        report_multiple_bugs=False,
    )
    return machine.TestCase


TestBestFit = histories("best-fit")
TestFifo = histories("fifo")
TestRandom = histories("random")
TestRecentUse = histories("recent-use")
