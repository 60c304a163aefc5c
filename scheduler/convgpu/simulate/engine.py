"""Plays jobs in virtual time; a scheme decides which of them gets memory when."""

import heapq
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from convgpu.simulate.workload import Job

FIRST_BACK_OFF: Final = 5.0
MAX_BACK_OFF: Final = 300.0


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
        now: seconds of virtual time.
        failures: how many attempts failed.
        shares: byte seconds of all devices, by what became of them.
    """

    jobs: list[Job]
    scheme: Scheme
    restart: float = 0.0
    now: float = 0.0
    failures: int = 0
    shares: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _scheduled: int = 0

    def run(self) -> None:
        """Play all jobs to their end.

        Raises:
            RuntimeError: a job was never served.
        """
        self.scheme.simulation = self
        for job in self.jobs:
            self._schedule(job.arrival, lambda job=job: self._begin(job))  # type: ignore[misc]
        while self._agenda:
            self._count_idle(until=self._agenda[0][0])
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        if not all(job.end for job in self.jobs):
            raise RuntimeError("a job was never served")

    def _schedule(self, time: float, action: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._agenda, (time, self._scheduled, action))

    def _count_idle(self, until: float) -> None:
        if until > self.now:
            for reason, size in self.scheme.idle_bytes().items():
                self.shares[reason] += size * (until - self.now)

    def _begin(self, job: Job) -> None:
        job.phase, job.held, job.byte_seconds, job.since = 0, 0, 0.0, self.now
        self.scheme.begin(job)

    def allocate(self, job: Job) -> None:
        """Let a job allocate the memory of its next phase."""
        job.byte_seconds += job.held * (self.now - job.since)
        self.scheme.allocate(job, job.phases[job.phase].size)

    def grant(self, job: Job) -> None:
        """Let a job work with the allocation that it waited for. The memory that it held meanwhile was of no use."""
        job.since = self.now
        phase = job.phases[job.phase]
        job.held += phase.size
        self._schedule(self.now + phase.seconds, lambda: self._end_phase(job))

    def _end_phase(self, job: Job) -> None:
        job.phase += 1
        if job.phase < len(job.phases):
            self.allocate(job)
            return
        job.byte_seconds += job.held * (self.now - job.since)
        self.shares["working"] += job.byte_seconds
        job.end = self.now
        self.scheme.end(job)

    def refuse(self, job: Job) -> None:
        """Fail the attempt of a job: its work is lost, and it starts again after a back-off."""
        self.shares["lost"] += job.byte_seconds
        self.failures += 1
        self.scheme.end(job)
        back_off = min(FIRST_BACK_OFF * 2**job.attempts, MAX_BACK_OFF)
        job.attempts += 1
        self._schedule(self.now + back_off + self.restart, lambda: self._begin(job))
