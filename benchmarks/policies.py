"""A thousand simulated containers on eight devices: what each policy makes of the same arrivals, in virtual time.

A container has a limit on one device; it allocates that in three parts and works between them, as programs do that
load a model, then data, then compute. Beside the policies stand two ways without ConvGPU: who finds its device full
fails, loses its work and is tried again with back-off; and one container at a time on each device.

Waiting is all the time from arrival to end that is not the work itself, done once. Memory in use counts while it
belongs to work that is not lost; also while its container waits for more.
"""

import heapq
import json
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from _report import RESULTS, percentile
from rich.console import Console
from rich.table import Table
from world import World

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies import POLICIES

CONTAINERS, DEVICES, CAPACITY = 1000, 8, 140
ARRIVALS_WITHIN = 6000.0
FIRST_BACK_OFF, LONGEST_BACK_OFF = 5.0, 300.0


@dataclass
class Job:
    """One container. Sizes in GiB, times in seconds; `parts`: what it allocates, and how long it works then.

    `used`: GiB seconds of the try at hand, up to `since`.
    """

    number: int
    arrival: float
    device: str
    parts: list[tuple[int, float]]
    done: int = 0
    tries: int = 0
    held: int = 0
    since: float = 0.0
    end: float = 0.0
    used: float = 0.0

    @property
    def limit(self) -> int:
        """What it allocates in all."""
        return sum(size for size, _ in self.parts)

    @property
    def work(self) -> float:
        """How long it works in all."""
        return sum(seconds for _, seconds in self.parts)


@dataclass
class Simulation:
    """Virtual time. `memory` says whether an allocation is granted now; if not, it calls `go_on` later, or `fail`."""

    jobs: list[Job]
    memory: "Memory"
    now: float = 0.0
    used: float = 0.0
    lost: float = 0.0
    failures: int = 0
    agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    count: int = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self.count += 1
        heapq.heappush(self.agenda, (time, self.count, action))

    def run(self) -> None:
        """Play it through."""
        self.memory.simulation = self
        for job in self.jobs:
            self.at(job.arrival, lambda job=job: self.begin(job))
        while self.agenda:
            self.now, _, action = heapq.heappop(self.agenda)
            action()
        assert all(job.end for job in self.jobs), "somebody was never served"

    def begin(self, job: Job) -> None:
        """The container starts, or starts again."""
        job.done, job.held, job.used, job.since = 0, 0, 0.0, self.now
        self.memory.begin(job)

    def ask(self, job: Job) -> None:
        """It allocates its next part."""
        self.memory.ask(job, job.parts[job.done][0])

    def go_on(self, job: Job) -> None:
        """Its allocation was granted: it works."""
        self._count_use(job)
        size, seconds = job.parts[job.done]
        job.held += size
        self.at(self.now + seconds, lambda: self.worked(job))

    def worked(self, job: Job) -> None:
        """It has worked with what it has."""
        job.done += 1
        if job.done < len(job.parts):
            self.ask(job)
            return
        self._count_use(job)
        self.used += job.used
        job.end = self.now
        self.memory.end(job)

    def fail(self, job: Job) -> None:
        """Its allocation was refused: it ends, and is tried again."""
        self._count_use(job)
        self.lost += job.used
        self.failures += 1
        self.memory.end(job)
        back_off = min(FIRST_BACK_OFF * 2**job.tries, LONGEST_BACK_OFF)
        job.tries += 1
        self.at(self.now + back_off, lambda: self.begin(job))

    def _count_use(self, job: Job) -> None:
        job.used += job.held * (self.now - job.since)
        job.since = self.now


class Memory:
    """Who gets memory when."""

    simulation: Simulation

    def begin(self, job: Job) -> None:
        """The container starts, or starts again."""
        self.simulation.ask(job)

    def ask(self, job: Job, size: int) -> None:
        """It allocates so much."""
        raise NotImplementedError

    def end(self, job: Job) -> None:
        """It has ended."""
        raise NotImplementedError


class Shared(Memory):
    """ConvGPU: the machine itself."""

    def __init__(self, policy: str) -> None:
        seeded = random.Random(1)  # noqa: S311 - a workload, not a secret
        self.world = World(Machine(capacities(), POLICIES[policy](seeded)), judging=False)
        self.sessions: dict[int, int] = {}
        self.waiting: dict[int, Job] = {}

    def begin(self, job: Job) -> None:
        """It is created and connects."""
        self.world.now = self.simulation.now
        self.world.create(str(job.number), {job.device: job.limit})
        self.sessions[job.number] = self.world.start(str(job.number))
        super().begin(job)

    def ask(self, job: Job, size: int) -> None:
        """The hook asks."""
        self.world.now = self.simulation.now
        request = self.world.allocate(self.sessions[job.number], size, job.device)
        if request:
            self.waiting[request] = job
            self._go_on()
        else:
            self.simulation.go_on(job)

    def end(self, job: Job) -> None:
        """Its process ends, and its volume is removed."""
        self.world.now = self.simulation.now
        self.world.remove(str(job.number))
        self._go_on()

    def _go_on(self) -> None:
        for request in [request for request in self.waiting if request in self.world.answers]:
            assert isinstance(self.world.answers[request], e.Accept)
            self.simulation.go_on(self.waiting.pop(request))


class Retried(Memory):
    """Nobody pauses: who finds too little fails, and is tried again."""

    def __init__(self) -> None:
        self.free = capacities()

    def ask(self, job: Job, size: int) -> None:
        """It gets what is free, or fails."""
        if size > self.free[job.device]:
            self.simulation.fail(job)
        else:
            self.free[job.device] -= size
            self.simulation.go_on(job)

    def end(self, job: Job) -> None:
        """What it held is free."""
        self.free[job.device] += job.held


class Alone(Memory):
    """One container at a time on each device, in the order of arrival."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[Job]] = defaultdict(deque)

    def begin(self, job: Job) -> None:
        """It starts when it is the first."""
        self.queues[job.device].append(job)
        if self.queues[job.device][0] is job:
            super().begin(job)

    def ask(self, job: Job, size: int) -> None:  # noqa: ARG002
        """The device is its own."""
        self.simulation.go_on(job)

    def end(self, job: Job) -> None:
        """The next one starts."""
        queue = self.queues[job.device]
        queue.popleft()
        if queue:
            queue[0].since = self.simulation.now
            self.simulation.ask(queue[0])


def capacities() -> dict[str, int]:
    """GiB of each device."""
    return {f"g{number}": CAPACITY for number in range(DEVICES)}


def draw_jobs(seed: int) -> list[Job]:
    """The same arrivals for everybody: limits of 2 to 80 GiB, most of them small, and work of some minutes."""
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    jobs = []
    for number in range(CONTAINERS):
        limit = min(max(round(draw.lognormvariate(2.7, 0.8)), 4), 80)
        first, second = limit // 2, limit // 4
        parts = [
            (size, draw.expovariate(1 / seconds))
            for size, seconds in ((first, 30.0), (second, 60.0), (limit - first - second, 200.0))
        ]
        jobs.append(Job(number, draw.uniform(0, ARRIVALS_WITHIN), f"g{draw.randrange(DEVICES)}", parts))
    return jobs


def measure(memory: Memory, seed: int) -> dict[str, float]:
    """Play one way through."""
    simulation = Simulation(draw_jobs(seed), memory)
    simulation.run()
    makespan = max(job.end for job in simulation.jobs)
    waits = [max(job.end - job.arrival - job.work, 0.0) for job in simulation.jobs]
    whole = DEVICES * CAPACITY * makespan
    return {
        "makespan": makespan,
        "mean wait": statistics.fmean(waits),
        "p99 wait": percentile(waits, 99),
        "utilisation": 100 * simulation.used / whole,
        "lost": 100 * simulation.lost / whole,
        "failures": simulation.failures,
    }


def main() -> None:
    """Medians of three draws of arrivals."""
    ways: dict[str, Callable[[], Memory]] = {
        **{name: (lambda name=name: Shared(name)) for name in sorted(POLICIES)},
        "fail and try again": Retried,
        "one at a time": Alone,
    }
    table = Table(title=f"policies: {CONTAINERS} containers, {DEVICES} devices", title_justify="left", show_edge=False)
    table.add_column("")
    for column in ("makespan", "mean wait", "p99 wait", "memory in use", "lost to failures", "failures"):
        table.add_column(column, justify="right")
    results = {}
    for name, way in ways.items():
        runs = [measure(way(), seed) for seed in (1, 2, 3)]
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        results[name] = median
        seconds = [f"{median[key]:.0f} s" for key in ("makespan", "mean wait", "p99 wait")]
        shares = [f"{median[key]:.1f} %" for key in ("utilisation", "lost")]
        table.add_row(name, *seconds, *shares, f"{median['failures']:.0f}")
    Console(width=110).print(table)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "policies.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
