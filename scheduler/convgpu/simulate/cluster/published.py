"""Exclusive scheduling as a published simulator does it, to validate ours: the figures have to be the same.

The reference is the simulator of Muri (SIGCOMM'22; Rivendile/Muri, Apache-2.0), whose results for SRTF, SRSF and
Tiresias on four traces are published with it. This is our own code for its semantics:

- A job is a number of iterations of a fixed time, which is 1.5 % longer than on an empty machine.
- At every event all jobs are put in order and the empty cluster is filled again.
- A start-up cost is taken from every running job at every event, not only at restarts; a job's end is projected
  without it.
- SRTF and SRSF place: up to a node's GPUs on one node, first fit; more on whole nodes and the rest on one. Tiresias
  counts GPUs.
- Ends at the same floating-point time, and an end at the time of an arrival, are one event.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from convgpu.ranking import TIRESIAS_LEVELS, Ranking, ShortestRemainingService, ShortestRemainingTime

SLOWER: Final = 1.015  # an iteration beside the machine's other work, against alone

# Seconds of a start by model and number of GPUs (1, 2, 4, 8, 16, 32), from the reference's profile.
START_SECONDS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "vgg16": (7, 7, 8, 9, 9, 10),
        "vgg19": (7, 7, 8, 9, 10, 10),
        "resnet18": (4, 5, 5, 7, 7, 7),
        "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
        "bert": (10, 10, 10, 10, 10, 10),
        "gpt2": (10, 10, 10, 10, 10, 10),
        "a2c": (38, 39, 39, 46, 46, 46),
        "dqn": (5, 5, 6, 6, 8, 8),
    }
)
OTHER_START_SECONDS: Final = 10


@dataclass(slots=True, eq=False)
class TrainingJob:
    """One job of a trace, and how far it is. Times in seconds."""

    name: str
    submitted: float
    cards: int
    iterations: float
    iteration_time: float
    start_time: float
    remaining: float  # of iterations
    attained_time: float = 0.0  # while running, start-ups included
    level: int = 0
    place: tuple[float, ...] = ()  # in the order of the jobs
    running: bool = False
    checked: float = 0.0
    ended: float = math.nan

    @property
    def attained(self) -> float:
        """GPU-seconds since the start."""
        return self.attained_time * self.cards

    def advance(self, now: float) -> None:
        """Count what a running job did since the last event."""
        self.attained_time = self.attained_time + now - self.checked
        self.iterations -= max(now - self.checked - self.start_time, 0) / self.iteration_time
        self.remaining = self.iterations * self.iteration_time
        self.checked = now


def training_job(row: Mapping[str, str]) -> TrainingJob:
    """Read one row of a trace of the reference; times there are milliseconds.

    Raises:
        KeyError, ValueError: a column is missing or is no number.
    """
    cards = int(row["num_gpu"])
    profile = START_SECONDS.get(row["model_name"])
    iterations, iteration_time = float(row["iterations"]), int(row["iteration_time"]) * SLOWER / 1000
    return TrainingJob(
        name=row["job_id"],
        submitted=int(row["submit_time"]) / 1000,
        cards=cards,
        iterations=iterations,
        iteration_time=iteration_time,
        remaining=iterations * iteration_time,
        start_time=profile[cards.bit_length() - 1] if profile else OTHER_START_SECONDS,
    )


@dataclass(slots=True)
class Nodes:
    """GPUs that are free on each node."""

    per_node: int
    free: list[int]

    def place(self, cards: int) -> bool:
        """Take the GPUs of a job, first fit and consolidated; all or none."""
        chosen = self._whole(cards // self.per_node) if cards > self.per_node else []
        if chosen is None:
            return False
        rest = cards - len(chosen) * self.per_node
        if rest:
            node = next((n for n, free in enumerate(self.free) if free >= rest and n not in chosen), None)
            if node is None:
                return False
            self.free[node] -= rest
        for node in chosen:
            self.free[node] = 0
        return True

    def _whole(self, count: int) -> list[int] | None:
        whole = [node for node, free in enumerate(self.free) if free == self.per_node][:count]
        return whole if len(whole) == count else None


def fill_nodes(jobs: Iterable[TrainingJob], nodes: int, per_node: int) -> Iterator[TrainingJob]:
    """Yield the jobs that run, in their order, on nodes that are filled anew."""
    room, free = Nodes(per_node, [per_node] * nodes), nodes * per_node
    for job in jobs:
        if job.cards <= free and room.place(job.cards):
            free -= job.cards
            yield job
        if not free:
            return


def fill_count(jobs: Iterable[TrainingJob], nodes: int, per_node: int) -> Iterator[TrainingJob]:
    """Yield the jobs that run, in their order, where GPUs are only counted."""
    free = nodes * per_node
    for job in jobs:
        if job.cards <= free:
            free -= job.cards
            yield job
        if not free:
            return


@dataclass(slots=True)
class Exclusive:
    """A cluster in which a GPU has one job at a time, and the state of its jobs.

    Attributes:
        ranking: the order of the jobs at each event; by levels where there is none.
        fill: chooses who runs of the ordered jobs.
        levels: bounds in GPU-seconds; a running job falls by at most one level at an event. A fall is due at a whole
            number of seconds of running.
    """

    ranking: Ranking | None
    fill: Callable[[Iterable[TrainingJob], int, int], Iterator[TrainingJob]]
    levels: Sequence[float] = ()
    nodes: int = 8
    per_node: int = 8
    present: list[TrainingJob] = field(default_factory=list)
    running: list[TrainingJob] = field(default_factory=list)

    def run(self, trace: Iterable[TrainingJob]) -> list[TrainingJob]:
        """Play all jobs to their end and return them in the order of their submission.

        Raises:
            ValueError: a job asks for more GPUs than the cluster has.
        """
        jobs = sorted(trace, key=attrgetter("submitted"))
        arrivals = [(at, list(group)) for at, group in groupby(jobs, key=attrgetter("submitted"))][::-1]
        end, ending, fall = math.inf, list[TrainingJob](), math.inf
        while arrivals or self.present:
            arrival = arrivals[-1][0] if arrivals else math.inf
            now = min(arrival, end, fall)
            if math.isinf(now):
                raise ValueError(f"job {self.present[0].name} asks for more GPUs than the cluster has")
            self._advance(now, ending if end == now else [])
            self._choose(now, arrivals.pop()[1] if arrival == now else [])
            end, ending = self._next_end(now)
            fall = self._next_fall(now)
        return jobs

    def _advance(self, now: float, ended: Sequence[TrainingJob]) -> None:
        for job in self.running:
            job.advance(now)
            self._rank(job)
        for job in ended:
            job.ended, job.running = now, False
            self.running.remove(job)
        if ended:
            self.present = [job for job in self.present if math.isnan(job.ended)]

    def _choose(self, now: float, arrived: Sequence[TrainingJob]) -> None:
        bounds = [*self.levels, math.inf]
        fallen = [job for job in self.running if job.attained >= bounds[job.level]]
        for job in fallen:
            job.level += 1
            self.present.remove(job)
        for job in (*arrived, *fallen):
            self._rank(job)
            self.present.append(job)
        self.present.sort(key=attrgetter("place"))
        before, self.running = self.running, list(self.fill(self.present, self.nodes, self.per_node))
        for job in before:
            job.running = False
        for job in self.running:
            job.running, job.checked = True, now
        if self.levels and (fallen or self.running != before):  # inside a level whoever runs precedes whoever waits
            self.present.sort(key=attrgetter("running"), reverse=True)
            self.present.sort(key=attrgetter("place"))

    def _rank(self, job: TrainingJob) -> None:
        job.place = self.ranking.place(job) if self.ranking else (job.level,)

    def _next_end(self, now: float) -> tuple[float, list[TrainingJob]]:
        ends = [(now + job.remaining, job) for job in self.running]
        first = min((end for end, _ in ends), default=math.inf)
        return first, [job for end, job in ends if end == first]

    def _next_fall(self, now: float) -> float:
        falls = (
            math.ceil(self.levels[job.level] / job.cards) - job.attained_time + now
            for job in self.running
            if job.level < len(self.levels)
        )
        return min(falls, default=math.inf)


def published_scheduler(name: str) -> Exclusive:
    """Return the scheduler of that name: `srtf`, `srsf` or `tiresias`, on 8 nodes of 8 GPUs.

    Raises:
        KeyError: there is no such scheduler.
    """
    if name == "tiresias":
        return Exclusive(None, fill_count, TIRESIAS_LEVELS)
    rankings: Mapping[str, Ranking] = {"srtf": ShortestRemainingTime(), "srsf": ShortestRemainingService()}
    return Exclusive(rankings[name], fill_nodes)
