"""No history of containers, processes, drivers, administrators and restarts of the scheduler breaks an invariant.

`CheckedHost` holds the machine against the invariants and a second account of all memory after every step. At the end
of each history the external memory goes, every process that can run ends, and every allocation has to have been served.

CONVGPU_EXAMPLES=5000 in the environment tries more histories; CONVGPU_SHRINK=1 makes a failing one small.
"""

import os
from collections.abc import Mapping

from checked_host import CheckedHost
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from rounds import rounds

from convgpu.core import events as e
from convgpu.core.allocation.admission import GANG_TIMEOUT
from convgpu.core.machine import Machine
from convgpu.core.memory.account import AccountView
from convgpu.core.placement import Choice, PlacementPolicyChosen
from convgpu.policies.memory import POLICIES, make_policy
from convgpu.policies.placement import PLACEMENT_POLICIES

EXAMPLES = int(os.environ.get("CONVGPU_EXAMPLES", rounds(40, few=15)))
# To make a history small takes minutes, so it has to be asked for.
PHASES = [phase for phase in Phase if phase is not Phase.shrink or "CONVGPU_SHRINK" in os.environ]
DRAW = st.data()
CHOICES = st.sampled_from([None, None, Choice(), Choice(2), Choice(is_default=True)])


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
        self.host = CheckedHost(self.make_machine(self.policy_name))
        self.host.looks_at_once = False
        self.count = 0
        self.late_facts = False

    def make_machine(self, policy: str, *, recovering: bool = False) -> Machine:
        return Machine(self.capacity, make_policy(policy, seed=1), self.starvation_timeout, recovering=recovering)

    # -- containers and processes -------------------------------------------------------------------------

    @rule(
        data=DRAW,
        wait=st.sampled_from([None, None, 8.0]),
        priority=st.sampled_from([-5, 0, 1]),
        at_once=st.booleans(),
        kind=st.sampled_from(["", "", "whole", "gang"]),
    )
    def create(self, data: st.DataObject, wait: float | None, priority: int, at_once: bool, kind: str = "") -> None:
        self.count += 1
        devices = data.draw(st.sets(st.sampled_from(sorted(self.capacity)), min_size=1, max_size=3))
        share = 2 if kind == "gang" else 1  # at most two in a gang
        limits = {device: data.draw(st.integers(1, self.capacity[device] // share)) for device in sorted(devices)}
        choice = data.draw(CHOICES)
        if choice is not None and choice.count > len(limits):
            choice = None
        gang = f"gang{self.count // 2}" if kind == "gang" else ""
        given = limits if at_once else {}
        self.host.create(f"c{self.count}", given, wait, priority, choice, is_whole=bool(kind), gang=gang)
        if not at_once:
            self.host.dispatch(e.LimitsSet(f"c{self.count}", limits))

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW)
    def start(self, data: st.DataObject) -> None:
        visible = data.draw(st.sets(st.sampled_from(sorted(self.capacity)), max_size=3))
        self.host.start(self.container(data), visible=sorted(visible))

    @rule(data=DRAW)
    def arrive(self, data: st.DataObject) -> None:
        """What happens most: a container comes, and takes a part of its limit."""
        self.create(data, None, 0, at_once=True)
        session = self.host.start(f"c{self.count}")
        if not session:
            return  # all that it could get is drained, or smaller now
        device, account = data.draw(st.sampled_from(sorted(self.accounts(session).items(), key=lambda item: item[0])))
        size, is_context = data.draw(st.integers(1, account.limit)), data.draw(st.booleans())
        self.host.allocate(session, size, device, is_context=is_context)

    @precondition(lambda self: self.present())
    @rule(data=DRAW)
    def allocate_again(self, data: st.DataObject) -> None:
        self.allocate(data)

    @precondition(lambda self: self.present())
    @rule(data=DRAW)
    def allocate(self, data: st.DataObject) -> None:
        session = self.session(data)
        device, account = data.draw(st.sampled_from(sorted(self.accounts(session).items(), key=lambda item: item[0])))
        self.host.allocate(session, data.draw(st.integers(1, account.limit + 1)), device)

    @precondition(lambda self: any(any(self.host.processes[session].used.values()) for session in self.present()))
    @rule(data=DRAW)
    def free(self, data: st.DataObject) -> None:
        used = [
            (session, device, size)
            for session, process in self.host.processes.items()
            if session not in self.host.adopted
            for device, size in process.used.items()
            if size
        ]
        session, device, size = data.draw(st.sampled_from(used))
        self.host.free(session, data.draw(st.integers(1, size)), device)

    @precondition(lambda self: self.present())
    @rule(data=DRAW, settled=st.booleans(), exported=st.sampled_from((0, 0, 3, 99)))
    def end(self, data: st.DataObject, settled: bool, exported: int) -> None:
        self.host.end(self.session(data), settled=settled, exported=exported)

    @precondition(lambda self: self.host.unsettled)
    @rule(data=DRAW)
    def settle(self, data: st.DataObject) -> None:
        self.host.settle(data.draw(st.sampled_from(sorted(self.host.unsettled))))

    @precondition(lambda self: self.present())
    @rule(data=DRAW, exported=st.sampled_from((0, 0, 3, 99)))
    def reconnect(self, data: st.DataObject, exported: int) -> None:
        """Connect again, also as another program that the process executes: that holds nothing."""
        session = self.session(data)
        held = {} if exported else dict(self.host.processes[session].used)
        self.host.reconnect(session, held, exported=exported)

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW, way=st.sampled_from(["mount", "unmount", "finish", "remove"]))
    def mount_or_end(self, data: st.DataObject, way: str) -> None:
        getattr(self.host, way)(self.container(data))

    @rule(seconds=st.floats(0.1, 20))
    def time_passes(self, seconds: float) -> None:
        self.host.now += seconds
        deadline = self.host.machine.next_deadline()
        if deadline is not None and deadline <= self.host.now:
            self.host.dispatch(e.TimePassed())

    # -- administrators and facts ---------------------------------------------------------------------------

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW)
    def change_limit(self, data: st.DataObject) -> None:
        name = self.container(data)
        device = data.draw(st.sampled_from(sorted(self.host.machine.offer(name) or self.host.machine.accounts(name))))
        if self.host.terms[name].gang:
            return  # the scheduler refuses what its gang could never have together
        self.host.dispatch(e.LimitsChanged(name, {device: data.draw(st.integers(1, self.capacity[device]))}))

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW, share=st.none() | st.floats(0, 1))
    def learn_limit(self, data: st.DataObject, share: float | None) -> None:
        """Whatever was learned, nobody is rejected by it, and the state stays safe."""
        name = self.container(data)
        accounts = self.host.machine.accounts(name)
        learned = {} if share is None else {device: int(account.limit * share) for device, account in accounts.items()}
        self.host.dispatch(e.LimitsLearned(name, learned))

    @precondition(lambda self: self.host.terms)
    @rule(data=DRAW, wait=st.none() | st.floats(0, 30), priority=st.integers(-20, 20))
    def change_terms(self, data: st.DataObject, wait: float | None, priority: int) -> None:
        self.host.dispatch(e.TermsChanged(self.container(data), wait, priority))

    @rule(name=st.sampled_from(sorted(POLICIES)))
    def choose_policy(self, name: str) -> None:
        self.host.dispatch(e.PolicyChosen(name, seed=1))

    @rule(name=st.sampled_from(sorted(PLACEMENT_POLICIES)))
    def choose_placement_policy(self, name: str) -> None:
        self.host.dispatch(PlacementPolicyChosen(name))

    @rule(data=DRAW, drained=st.booleans())
    def drain(self, data: st.DataObject, drained: bool) -> None:
        self.host.dispatch(e.DeviceDrained(self.device(data), drained))

    @rule(data=DRAW)
    def change_capacity(self, data: st.DataObject) -> None:
        device = self.device(data)
        is_lost = data.draw(st.sampled_from([False, False, True]))
        capacity = 0 if is_lost else data.draw(st.integers(0, self.capacity[device]))
        self.host.dispatch(e.CapacityChanged(device, capacity, is_lost=is_lost))

    @precondition(lambda self: any(self.host.machine.accounts(name) for name in self.host.terms))
    @rule(data=DRAW, size=st.integers(0, 12))
    def overuse(self, data: st.DataObject, size: int) -> None:
        self.host.dispatch(e.UnleasedMemory(*self.account(data), size))

    @precondition(lambda self: any(self.host.machine.accounts(name) for name in self.host.terms))
    @rule(data=DRAW, size=st.integers(0, 12))
    def may_be_kept(self, data: st.DataObject, size: int) -> None:
        self.host.dispatch(e.MayBeKept(*self.account(data), size))

    @precondition(lambda self: self.host.looks)
    @rule(data=DRAW)
    def look(self, data: st.DataObject) -> None:
        self.host.tell_looked(data.draw(st.integers(0, len(self.host.looks) - 1)))

    # -- the scheduler dies -----------------------------------------------------------------------------------

    @precondition(lambda self: not self.host.machine.recovering)
    @rule(name=st.sampled_from(sorted(POLICIES)))
    def restart(self, name: str) -> None:
        self.host.restart(self.make_machine(name, recovering=True))

    @precondition(lambda self: self.host.previous)
    @rule(data=DRAW)
    def come_back(self, data: st.DataObject) -> None:
        self.host.reconnect_previous(data.draw(st.integers(0, len(self.host.previous) - 1)))

    @precondition(lambda self: self.host.previous and self.host.machine.recovering)
    @rule(data=DRAW)
    def guess(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.host.previous) - 1))
        used = self.host.previous[place].used
        self.host.adopt(place, {device: data.draw(st.integers(0, size + 1)) for device, size in used.items()})

    @precondition(lambda self: self.host.adopted)
    @rule(data=DRAW)
    def come_back_late(self, data: st.DataObject) -> None:
        self.host.reconnect_adopted(data.draw(st.sampled_from(sorted(self.host.adopted))))

    @precondition(lambda self: self.host.machine.recovering)
    @rule()
    def recovery_ends(self) -> None:
        # What they hold may be granted to others before they come back.
        self.late_facts |= bool(self.host.previous or self.host.adopted)
        self.host.dispatch(e.RecoveryEnded())

    # -- what is drawn from -----------------------------------------------------------------------------------

    def container(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.host.terms)))

    def session(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.present())))

    def present(self) -> set[int]:
        """Processes of containers that have a place."""
        return {session for session in self.host.processes.keys() - self.host.adopted.keys() if self.accounts(session)}

    def device(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.capacity)))

    def account(self, data: st.DataObject) -> tuple[str, str]:
        names = [name for name in self.host.terms if self.host.machine.accounts(name)]
        name = data.draw(st.sampled_from(sorted(names)))
        return name, data.draw(st.sampled_from(sorted(self.host.machine.accounts(name))))

    def accounts(self, session: int) -> Mapping[str, AccountView]:
        return self.host.machine.accounts(self.host.processes[session].container)

    # -- what must be true --------------------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "host"):
            self.host.check()

    def teardown(self) -> None:
        """Liveness: when the facts are undone and every process that can run ends, every allocation is served."""
        if not hasattr(self, "host"):
            return
        self.undo_facts()
        devices = self.host.machine.snapshot().devices.values()
        deficit = sum(figures.deficit for figures in devices)
        assert deficit == sum(figures.nominal_deficit for figures in devices)
        assert not deficit or self.late_facts, "the deficit is not gone with what made it"
        while self.host.processes and not deficit:
            self.host.now += GANG_TIMEOUT  # rejects those of a gang that never comes
            self.host.dispatch(e.TimePassed())
            waiting = {asked.session for asked in self.host.pending.values()}
            blocked = {self.host.processes[session].container for session in waiting}
            runnable = [s for s, process in self.host.processes.items() if process.container not in blocked]
            assert runnable or not self.host.pending, f"deadlock: {self.host.pending}"
            for session in runnable:
                self.host.end(session)
            self.host.check()

    def undo_facts(self) -> None:
        while self.host.previous:
            self.host.reconnect_previous(0)
        for session in list(self.host.adopted):
            self.host.reconnect_adopted(session)
        self.host.dispatch(e.RecoveryEnded())
        for name, accounts in self.host.machine.snapshot().accounts.items():
            for device in accounts:
                self.host.dispatch(e.UnleasedMemory(name, device, 0))
        while self.host.looks:
            self.host.tell_looked(0)
        for device, capacity in self.capacity.items():
            self.host.dispatch(e.CapacityChanged(device, capacity))
            self.host.dispatch(e.DeviceDrained(device, drained=False))
        self.host.check()


def histories(name: str, base: type[Histories] = Histories, examples: int = EXAMPLES) -> type:
    machine = type(f"{base.__name__} {name}", (base,), {"policy_name": name})
    machine.TestCase.settings = settings(
        max_examples=examples,
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
