"""Containers that arrive, allocate, work and end, in virtual time; whoever gives them memory stands in policies.py."""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

CONTAINERS, DEVICES, CAPACITY = 1000, 8, 140
ARRIVALS_WITHIN = 6000.0
FIRST_BACK_OFF, LONGEST_BACK_OFF = 5.0, 300.0
LARGE = 40  # GiB; who needs more counts as large


@dataclass(frozen=True)
class Model:
    """How programs behave.

    Attributes:
        shares: of its memory that a program allocates one after the other, each with the mean seconds (of an
            exponential distribution) that it works then, holding all that it has allocated.
        slack: its limit, as a multiple of what it allocates in all.
    """

    name: str
    shares: tuple[tuple[float, float], ...]
    slack: float = 1.0


MODELS = (
    Model("in three parts: half, a quarter after 30 s, the rest after 60 s", ((0.5, 30), (0.25, 60), (0.25, 200))),
    Model("all at once", ((1.0, 290),)),
    Model("in three parts, limits twice the need", ((0.5, 30), (0.25, 60), (0.25, 200)), slack=2.0),
)


@dataclass
class Job:
    """One container. Sizes in GiB, times in seconds; `parts`: what it allocates, and how long it works then.

    `used`: GiB seconds of the try at hand, up to `since`.
    """

    number: int
    arrival: float
    device: str
    parts: list[tuple[int, float]]
    limit: int
    done: int = 0
    tries: int = 0
    held: int = 0
    since: float = 0.0
    end: float = 0.0
    used: float = 0.0

    @property
    def need(self) -> int:
        """What it allocates in all."""
        return sum(size for size, _ in self.parts)

    @property
    def work(self) -> float:
        """How long it works in all."""
        return sum(seconds for _, seconds in self.parts)

    @property
    def wait(self) -> float:
        """All the time from arrival to end that is not the work itself, done once."""
        return max(self.end - self.arrival - self.work, 0.0)


class Memory:
    """Who gets memory when."""

    simulation: "Simulation"

    def begin(self, job: Job) -> None:
        """The container starts, or starts again."""
        self.simulation.ask(job)

    def ask(self, job: Job, size: int) -> None:
        """It allocates so much."""
        raise NotImplementedError

    def end(self, job: Job) -> None:
        """It has ended."""
        raise NotImplementedError

    def split(self) -> dict[str, int]:
        """GiB that are in no use now, by what keeps them from it, as far as that is known."""
        return {}


@dataclass
class Simulation:
    """Virtual time. `memory` says whether an allocation is granted now; if not, it calls `go_on` later, or `fail`.

    Attributes:
        restart: seconds that it takes to start a failed container again, beside the back-off.
        shares: GiB seconds of all devices, by what became of them.
    """

    jobs: list[Job]
    memory: Memory
    restart: float = 0.0
    now: float = 0.0
    failures: int = 0
    shares: Counter[str] = field(default_factory=Counter)
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
            time = self.agenda[0][0]
            if time > self.now:
                for what, size in self.memory.split().items():
                    self.shares[what] += size * (time - self.now)
            self.now, _, action = heapq.heappop(self.agenda)
            action()
        assert all(job.end for job in self.jobs), "somebody was never served"

    def begin(self, job: Job) -> None:
        """The container starts, or starts again."""
        job.done, job.held, job.used, job.since = 0, 0, 0.0, self.now
        self.memory.begin(job)

    def ask(self, job: Job) -> None:
        """It allocates its next part."""
        job.used += job.held * (self.now - job.since)
        self.memory.ask(job, job.parts[job.done][0])

    def go_on(self, job: Job) -> None:
        """Its allocation was granted: it works. What it held while it waited was of no use."""
        job.since = self.now
        size, seconds = job.parts[job.done]
        job.held += size
        self.at(self.now + seconds, lambda: self.worked(job))

    def worked(self, job: Job) -> None:
        """It has worked with what it has."""
        job.done += 1
        if job.done < len(job.parts):
            self.ask(job)
            return
        job.used += job.held * (self.now - job.since)
        self.shares["working"] += job.used
        job.end = self.now
        self.memory.end(job)

    def fail(self, job: Job) -> None:
        """Its allocation was refused: it ends, and is tried again."""
        self.shares["lost"] += job.used
        self.failures += 1
        self.memory.end(job)
        back_off = min(FIRST_BACK_OFF * 2**job.tries, LONGEST_BACK_OFF)
        job.tries += 1
        self.at(self.now + back_off + self.restart, lambda: self.begin(job))


def capacities() -> dict[str, int]:
    """GiB of each device."""
    return {f"g{number}": CAPACITY for number in range(DEVICES)}


def draw_jobs(model: Model, seed: int) -> list[Job]:
    """The same arrivals, needs (4 to 80 GiB, half of them below 15) and devices for everybody."""
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    jobs = []
    for number in range(CONTAINERS):
        need = min(max(round(draw.lognormvariate(2.7, 0.8)), 4), 80)
        sizes = [int(need * share) for share, _ in model.shares[:-1]]
        sizes.append(need - sum(sizes))
        seconds = [draw.expovariate(1 / mean) for _, mean in model.shares]
        device = f"g{draw.randrange(DEVICES)}"
        limit = min(round(need * model.slack), CAPACITY)
        jobs.append(
            Job(number, draw.uniform(0, ARRIVALS_WITHIN), device, list(zip(sizes, seconds, strict=True)), limit)
        )
    return jobs
