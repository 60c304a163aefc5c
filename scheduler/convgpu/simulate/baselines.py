"""Sharing without ConvGPU: what people do otherwise."""

from collections import defaultdict, deque
from math import inf

from convgpu.simulate.engine import Scheme
from convgpu.simulate.workload import Job, capacities


class FailAndRetry(Scheme):
    """No allocation waits: a job that finds too little free memory fails and starts again."""

    def __init__(self) -> None:
        self._free = capacities()

    def allocate(self, job: Job, size: int) -> None:
        """Grant what is free, or fail the job."""
        if size > self._free[job.device]:
            self.simulation.refuse(job)
        else:
            self._free[job.device] -= size
            self.simulation.grant(job)

    def end(self, job: Job) -> None:
        """Free what it held."""
        self._free[job.device] += job.held


class WithoutSafety(Scheme):
    """Allocations wait, the oldest that fits is next, and nothing keeps holders from waiting for each other.

    When all that hold memory of a device wait, a supervisor ends the youngest, which loses its work and starts again.
    """

    def __init__(self) -> None:
        self._free = capacities()
        self._waiting: dict[str, list[Job]] = defaultdict(list)
        self._working: dict[str, set[int]] = defaultdict(set)

    def allocate(self, job: Job, size: int) -> None:  # noqa: ARG002 - read from the job
        """Let the job wait, and serve what fits."""
        self._working[job.device].discard(job.number)
        self._waiting[job.device].append(job)
        self._serve(job.device)

    def end(self, job: Job) -> None:
        """Free what it held."""
        self._working[job.device].discard(job.number)
        self._free[job.device] += job.held
        self._serve(job.device)

    def idle_bytes(self) -> dict[str, int]:
        """Bytes held by jobs that wait for more."""
        return {"paused": sum(job.held for jobs in self._waiting.values() for job in jobs)}

    def _serve(self, device: str) -> None:
        waiting = self._waiting[device]
        for job in list(waiting):
            size = job.phases[job.phase].size
            if size <= self._free[device]:
                waiting.remove(job)
                self._free[device] -= size
                self._working[device].add(job.number)
                self.simulation.grant(job)
        holders = [job for job in waiting if job.held]
        if holders and not self._working[device]:
            youngest = max(holders, key=lambda job: job.number)
            waiting.remove(youngest)
            self.simulation.refuse(youngest)


class WholeLimitFirst(Scheme):
    """No job starts before its whole limit is free; the oldest that fits is next.

    Args:
        starvation_timeout: seconds after which no younger job goes before one on its device; None: never.
    """

    def __init__(self, starvation_timeout: float | None = None) -> None:
        self._free = capacities()
        self._timeout = inf if starvation_timeout is None else starvation_timeout
        self._queue: list[Job] = []

    def begin(self, job: Job) -> None:
        """Queue the job."""
        self._queue.append(job)
        self._start_fitting()

    def allocate(self, job: Job, size: int) -> None:  # noqa: ARG002 - its whole limit is set aside
        """Grant it: it is part of the limit."""
        self.simulation.grant(job)

    def end(self, job: Job) -> None:
        """Free its limit."""
        self._free[job.device] += job.limit
        self._start_fitting()

    def _start_fitting(self) -> None:
        closed = set()
        for job in list(self._queue):
            if job.limit <= self._free[job.device] and job.device not in closed:
                self._queue.remove(job)
                self._free[job.device] -= job.limit
                super().begin(job)
            elif self.simulation.now - job.arrival >= self._timeout:
                closed.add(job.device)


class OneAtATime(Scheme):
    """One job at a time on each device, in the order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Job]] = defaultdict(deque)

    def begin(self, job: Job) -> None:
        """Queue the job; the first of the queue runs."""
        self._queues[job.device].append(job)
        if self._queues[job.device][0] is job:
            super().begin(job)

    def allocate(self, job: Job, size: int) -> None:  # noqa: ARG002 - the whole device is its own
        """Grant it."""
        self.simulation.grant(job)

    def end(self, job: Job) -> None:
        """Start the next job of the queue."""
        queue = self._queues[job.device]
        queue.popleft()
        if queue:
            super().begin(queue[0])
