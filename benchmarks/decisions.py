"""Decisions of the pure machine with 1,000 containers and more: most waiting, most holding, limits chosen to hurt."""

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from _report import ROOT, Figure, at_most, percentile, report

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.core.step import Step
from convgpu.daemon.system.garbage_collection import GarbageCollection
from convgpu.daemon.system.native_claims import SafetyLibrary
from convgpu.policies.memory import POLICIES, make_policy
from convgpu.simulate.host import SimulatedHost

CONTAINERS, STEPS, PLAYS = 1000, 3000, 3
GIB, MIB = 1 << 30, 1 << 20
CAPACITY = 140 * GIB
CONTEXT = GIB // 2

Limits = Callable[[random.Random], dict[str, int]]


class Timed(Machine):
    """Measures each decision: the processor's time, which other programs do not change much, and that of the clock.

    Attributes:
        seconds: of the processor.
        elapsed: by the clock.
    """

    def __init__(self, capacity: Mapping[str, int], policy: str) -> None:
        library = SafetyLibrary(ROOT / "hook/build/libconvgpu-safety.so")
        super().__init__(capacity, make_policy(policy, seed=1), 60.0)
        self.use_tables(library.make_table)
        self.seconds: list[float] = []
        self.elapsed: list[float] = []

    def begin(self) -> None:
        """Measure from now on."""
        self.seconds.clear()
        self.elapsed.clear()

    def handle(self, event: e.Event, now: float) -> Step:
        """Handle the event, and keep the seconds that it took."""
        begun, start = time.perf_counter(), time.thread_time()
        step = super().handle(event, now)
        self.seconds.append(time.thread_time() - start)
        self.elapsed.append(time.perf_counter() - begun)
        return step


def limits_on(devices: int, most: int) -> Limits:
    """Return what draws the limits of a container: the same size on up to `most` of the devices."""

    def draw_limits(draw: random.Random) -> dict[str, int]:
        chosen = draw.sample(range(devices), draw.randint(1, most))
        return dict.fromkeys((f"g{number}" for number in sorted(chosen)), draw.randrange(1, 40) * GIB)

    return draw_limits


class Workload:
    """Containers on equal devices; each does as its load says, ends, and is followed by another.

    Args:
        policy: name.
        devices: how many; `capacity`: bytes of each.
        limits: draws the limits of a container.
        context: bytes that each container holds from its start; 0: it begins with a part of its limit.
    """

    def __init__(self, policy: str, devices: int, capacity: int, limits: Limits, context: int = 0) -> None:
        gc.collect()
        GarbageCollection(lambda _seconds, _call: None).start()  # as the scheduler does, between intervals
        self.draw = random.Random(1)  # noqa: S311 - a workload, not a secret
        self.machine = Timed({f"g{number}": capacity for number in range(devices)}, policy)
        self.host = SimulatedHost(self.machine)
        self.limits, self.context = limits, context

    def add(self, name: str) -> None:
        """Start a container; with a context it is a holder at once."""
        self.host.create(name, self.limits(self.draw))
        session = self.host.start(name)
        if self.context:
            self.host.allocate(session, self.context, self.draw.choice(list(self.machine.accounts(name))))

    def play(self, containers: int, steps: int, pool: int = 0) -> Timed:
        """Let always so many containers allocate parts of their limits, wait, and end.

        `pool`: bytes of the host beside each device.
        """
        host, draw = self.host, self.draw
        for device in self.machine.devices if pool else ():
            host.dispatch(r.PoolChanged(device, pool, GIB))
        for number in range(containers):
            self.add(f"c{number}")
            host.now += 0.01
        self.machine.begin()
        for step in range(steps):
            session = draw.choice(list(host.processes))
            if any(request.session == session for request in host.pending.values()):
                continue
            device, account = draw.choice(list(self.machine.accounts(host.processes[session].container).items()))
            room = account.limit - host.processes[session].used[device]
            if room > GIB // 2:
                host.allocate(session, draw.randrange(GIB // 2, room + 1), device)
            running = [process for process in host.processes.values() if any(process.used.values())]
            if running and draw.random() < 0.5:
                host.finish(draw.choice(running).container)
                self.add(f"d{step}")
            self.settle()
            host.now += 0.1
        return self.machine

    def settle(self) -> None:
        """Carry out what has been decided; there are no moves."""


class ElasticWorkload(Workload):
    """The same with containers whose memory may leave: the host carries each move out at once."""

    def add(self, name: str) -> None:
        """Start a container whose program allocates all it will have on one device, or a part."""
        limits = self.limits(self.draw)
        self.host.create(name, limits)
        self.host.dispatch(r.ElasticSet(name, dict.fromkeys(limits, 0)))
        session = self.host.start(name)
        self.host.dispatch(r.SessionAble(session, r.Mover.VMM))
        self.host.allocate(
            session, self.draw.randrange(GIB // 2, min(limits.values()) + 1), self.draw.choice([*limits])
        )
        self.settle()

    def settle(self) -> None:
        """Carry out all moves."""
        while self.host.moves:
            match self.host.moves.pop(0):
                case r.Stop(session, epoch):
                    works = all(request.session != session for request in self.host.pending.values())
                    self.host.dispatch(r.SessionStopped(session, epoch, r.StopOutcome.DRAINED, int(works)))
                case r.Evict(session, _, device, size):
                    self.host.dispatch(r.Evicted(session, device, size))
                case r.Restore(session, _, device, size):
                    self.host.dispatch(r.Restored(session, device, size))


def chain(length: int) -> Timed:
    """Limits chosen to hurt: each holder can end only after the one before it, and the last tenth asks for more.

    The order of the whole needs is the reverse of the order in which they can end.
    """
    slack, tight = 4096, length * 9 // 10
    step = 4 * MIB
    machine = Timed({"a": 3 * length * MIB, "b": step * (length + 2)}, "best-fit")
    host = SimulatedHost(machine)
    rest = 2 * length * MIB - MIB
    host.create("rest", {"a": rest, "b": step * (length + 2)})
    host.allocate(host.start("rest"), rest, "a")
    sessions = []
    for number in range(length):
        need = MIB * (number + 1) - (slack if number < tight else 0)
        more = MIB if number == length - 1 else 0
        host.create(f"c{number}", {"a": MIB + need, "b": (length - number) * step + more})
        sessions.append(host.start(f"c{number}"))
        if more:
            host.allocate(sessions[-1], more, "b")
        host.allocate(sessions[-1], MIB, "a")
    for number in range(tight + 1, length):
        host.allocate(sessions[number], 1 + number * 7919 % slack, "a")
    machine.begin()
    for number in [*range(20), *range(length // 2, length // 2 + 20)]:
        host.finish(f"c{number}")
        host.now += 1
    return machine


def judged(
    what: str, play: Callable[[], Timed], p99: float, longest: float | None = None
) -> tuple[Timed, list[Figure]]:
    """Play a workload several times; return the last machine, and figures in milliseconds against targets.

    The same events come in each play, so of each the least time of the processor counts: what else runs on the machine
    takes caches and interrupts, and only ever adds. The clock's time of one play stands beside it, without a target.
    """
    plays = []
    for _ in range(PLAYS):
        machine = play()
        plays.append(machine.seconds)
    taken = [min(times) * 1e3 for times in zip(*plays, strict=True)]
    figures = [
        Figure(f"{what}: decisions in a second of one core", 1e3 / statistics.fmean(taken), "/s"),
        at_most(f"{what}: a decision, p99", percentile(taken, 99), "ms", p99),
    ]
    if longest is not None:
        figures.append(at_most(f"{what}: the longest decision", max(taken), "ms", longest))
    once = {"of the processor": plays[-1], "by the clock": machine.elapsed}
    for clock, seconds in once.items():
        once_p99 = percentile(seconds, 99) * 1e3
        figures.append(Figure(f"{what}: p99 in one play, {clock}", once_p99, "ms"))
        figures.append(Figure(f"{what}: longest in one play, {clock}", max(seconds) * 1e3, "ms"))
    return machine, figures


def time_explanations(machine: Machine) -> float:
    """Return the milliseconds that `Machine.explain` takes for all waiting allocations."""
    assert len(machine.explain(1000.0)) == len(machine.waiting)
    return time_view(lambda: machine.explain(1000.0))


def time_view(view: Callable[[], object]) -> float:
    """Return the milliseconds that a view takes."""
    taken = []
    for _ in range(5):
        start = time.thread_time()
        view()
        taken.append(time.thread_time() - start)
    return statistics.median(taken) * 1e3


def measure_turns(figures: list[Figure]) -> None:
    """Half of the containers whose memory may leave run, and half wait for their turn: what `convgpu ps` asks."""
    names = [f"c{number}" for number in range(1200)]
    machine = Machine({"g0": 1200}, make_policy("fifo", seed=1), switch_cost=0.0)
    host = SimulatedHost(machine)
    host.dispatch(r.PoolChanged("g0", 2400, 1, 1))
    for name in names:
        host.create(name, {"g0": 2})
        host.dispatch(r.ElasticSet(name, {"g0": 0}))
        session = host.start(name)
        host.dispatch(r.SessionAble(session, r.Mover.VMM))
        host.allocate(session, 2, "g0")
    what = f"{len(machine.waiting)} wait for their turn"
    figures.append(Figure(f"{what}: explain all", time_explanations(machine), "ms"))
    views = time_view(lambda: [machine.residence(name) for name in names])
    figures.append(Figure(f"{what}: views of {len(names)} containers", views, "ms"))


def measure_waiting(figures: list[Figure]) -> None:
    """Most containers wait for their first allocation."""
    loads = {"1 device": (1, 1), "8 devices, one each": (8, 1), "8 devices, up to 8 each": (8, 8)}
    for name, (devices, most) in loads.items():
        for policy in sorted(POLICIES):
            limits = limits_on(devices, most)
            machine, found = judged(
                f"{name}, {policy}",
                lambda p=policy, n=devices, limits=limits: Workload(p, n, CAPACITY, limits).play(CONTAINERS, STEPS),
                1,
            )
            figures += found
        waiting = len(machine.waiting)
        figures.append(Figure(f"{name}: explain {waiting} waiting allocations", time_explanations(machine), "ms"))


def measure_holders(figures: list[Figure]) -> None:
    """Every container has made a context, so every container holds memory."""
    for holders, most, p99, longest in ((1000, 1, 1, 5), (1000, 8, 1, 5), (3000, 1, 5, None)):
        capacity = max(CAPACITY, 2 * holders * CONTEXT // 8)
        limits = limits_on(8, most)
        figures += judged(
            f"{holders} holders on 8 devices, up to {most} each",
            lambda h=holders, c=capacity, limits=limits: Workload("best-fit", 8, c, limits, CONTEXT).play(h, 1500),
            p99,
            longest,
        )[1]


def measure_many(figures: list[Figure]) -> None:
    """Ten thousand containers, of which most wait."""
    limits = limits_on(8, 1)
    figures += judged(
        "10,000 containers on 8 devices",
        lambda: Workload("best-fit", 8, CAPACITY, limits).play(10_000, 1000),
        5,
        5,
    )[1]


def measure_elastic(figures: list[Figure]) -> None:
    """A thousand containers whose memory may leave, of which most wait for their turn on a card."""
    for most in (1, 8):
        limits = limits_on(8, most)
        figures += judged(
            f"{CONTAINERS} elastic containers on 8 devices, up to {most} each",
            lambda limits=limits: ElasticWorkload("best-fit", 8, CAPACITY, limits).play(CONTAINERS, 1500, 1 << 50),
            1,
        )[1]


def measure_chain(figures: list[Figure]) -> None:
    """Limits chosen to hurt, on 300 holders and on 1,000."""
    for length in (300, 1000):
        figures += judged(f"{length} holders in a chain", lambda n=length: chain(n), 5, 5)[1]


def main() -> None:
    """All workloads, or those whose names are given: waiting, holders, many, elastic, chain, turns."""
    figures: list[Figure] = []
    loads = {
        "waiting": measure_waiting,
        "holders": measure_holders,
        "many": measure_many,
        "elastic": measure_elastic,
        "turns": measure_turns,
        "chain": measure_chain,
    }
    for name in sys.argv[1:] or loads:
        loads[name](figures)
    report("decisions", figures)


if __name__ == "__main__":
    main()
