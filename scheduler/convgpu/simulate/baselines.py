"""Sharing without ConvGPU: what people do otherwise."""

from collections import defaultdict, deque

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


class WholeLimitFirst(Scheme):
    """No job starts before its whole limit is free; the oldest that fits is next."""

    def __init__(self) -> None:
        self._free = capacities()
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
        for job in list(self._queue):
            if job.limit <= self._free[job.device]:
                self._queue.remove(job)
                self._free[job.device] -= job.limit
                super().begin(job)


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
