"""Plays jobs in virtual time; a scheme decides which of them gets memory when."""

import heapq
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from convgpu.policies.placement import Candidate, PlacementPolicy
from convgpu.simulate.workload import Job, capacities

FIRST_BACK_OFF: Final = 5.0
MAX_BACK_OFF: Final = 300.0
_MOST_DOUBLINGS: Final = 10  # beyond MAX_BACK_OFF, and far from what a float holds
_MOST_FAILURES: Final = 10_000  # without an end: those that end have had at most a hundred


class StandsStillError(RuntimeError):
    """Jobs fail and start again, and none ends any more."""


class Scheme(ABC):
    """Shares the memory of devices among jobs."""

    simulation: "Simulation"

    def begin(self, job: Job) -> None:
        """Start a job's container, or start it again."""
        self.simulation.allocate(job)

    @abstractmethod
    def allocate(self, job: Job, size: int) -> None:
        """Take an allocation; answer with `Simulation.grant`, now or later, or with `Simulation.refuse`."""

    @abstractmethod
    def end(self, job: Job) -> None:
        """Take back all memory of a job that ended or failed."""

    def idle_bytes(self) -> dict[str, int]:
        """Return the bytes that are in no use now, by the reason, as far as that is known."""
        return {}


@dataclass
class Simulation:
    """A run of jobs under one scheme.

    Attributes:
        restart: seconds that a failed container needs to start again, beside the back-off.
        placement: chooses the device of a container when it starts, of those of `capacities()`; None: as drawn.
        now: seconds of virtual time.
        failures: how many attempts failed.
        shares: byte seconds of all devices, by what became of them.
    """

    jobs: list[Job]
    scheme: Scheme
    restart: float = 0.0
    placement: PlacementPolicy | None = None
    now: float = 0.0
    failures: int = 0
    shares: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _scheduled: int = 0
    _failures_in_a_row: int = 0
    _present: dict[int, Job] = field(default_factory=dict)

    def run(self) -> None:
        """Play all jobs to their end.

        Raises:
            StandsStillError: jobs only fail and start again.
            RuntimeError: a job was never served.
        """
        self.scheme.simulation = self
        for job in self.jobs:
            if isfinite(job.arrival):
                self.schedule(job.arrival, lambda job=job: self.begin(job))  # type: ignore[misc]
        while self._agenda:
            self._count_idle(until=self._agenda[0][0])
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        if not all(job.end for job in self.jobs):
            raise RuntimeError("a job was never served")

    def schedule(self, time: float, action: Callable[[], None]) -> None:
        """Have something done at a time."""
        self._scheduled += 1
        heapq.heappush(self._agenda, (time, self._scheduled, action))

    def _count_idle(self, until: float) -> None:
        if until > self.now:
            for reason, size in self.scheme.idle_bytes().items():
                self.shares[reason] += size * (until - self.now)

    def begin(self, job: Job) -> None:
        """Let a job arrive, or start again."""
        job.phase, job.held, job.byte_seconds, job.since = 0, 0, 0.0, self.now
        if self.placement is not None:
            job.device = self._place(job, self.placement)
        self._present[job.number] = job
        self.scheme.begin(job)

    def _place(self, job: Job, policy: PlacementPolicy) -> str:
        candidates = []
        for place, (device, size) in enumerate(capacities().items()):
            others = [other for other in self._present.values() if other.device == device]
            held, promised = sum(other.held for other in others), sum(other.limit for other in others)
            candidates.append(Candidate(device, place, job.limit, size, size - held, promised, len(others)))
        return policy.rank(candidates, [other.limit for other in self._present.values()])[0].device

    def allocate(self, job: Job) -> None:
        """Let a job allocate the memory of its next phase."""
        self._count_work(job)
        self.scheme.allocate(job, job.phases[job.phase].size)

    def grant(self, job: Job) -> None:
        """Let a job work with the allocation that it waited for. The memory that it held meanwhile was of no use."""
        job.held += job.phases[job.phase].size
        job.left = job.phases[job.phase].seconds
        self.work(job)

    def work(self, job: Job) -> None:
        """Let a job work, or go on with its work."""
        job.since, job.is_working = self.now, True
        job.stints += 1
        stint = job.stints
        self.schedule(self.now + job.left, lambda: self._end_stint(job, stint))

    def halt(self, job: Job) -> None:
        """Let a job stand still; it has done a part of its phase."""
        job.left -= self.now - job.since
        self._count_work(job)
        job.stints += 1

    def _end_stint(self, job: Job, stint: int) -> None:
        if job.stints == stint:
            self._end_phase(job)

    def _count_work(self, job: Job) -> None:
        job.byte_seconds += job.held * (self.now - job.since) if job.is_working else 0.0
        job.is_working = False

    def _end_phase(self, job: Job) -> None:
        job.phase += 1
        if job.phase < len(job.phases):
            self.allocate(job)
            return
        self._count_work(job)
        self.shares["working"] += job.byte_seconds
        job.end = self.now
        self._failures_in_a_row = 0
        del self._present[job.number]
        self.scheme.end(job)
        self.ended(job)

    def ended(self, job: Job) -> None:
        """Take notice of a job that has ended; here nothing follows from it."""

    def refuse(self, job: Job) -> None:
        """Fail the attempt of a job: its work is lost, and it starts again after a back-off.

        Raises:
            StandsStillError: so many fail that no job will end.
        """
        self.shares["lost"] += job.byte_seconds
        self.failures += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row > _MOST_FAILURES:
            ended = sum(bool(one.end) for one in self.jobs)
            raise StandsStillError(f"{ended} of {len(self.jobs)} jobs ended; the others fail without end")
        del self._present[job.number]
        self.scheme.end(job)
        back_off = min(FIRST_BACK_OFF * 2 ** min(job.attempts, _MOST_DOUBLINGS), MAX_BACK_OFF)
        job.attempts += 1
        self.schedule(self.now + back_off + self.restart, lambda: self.begin(job))
