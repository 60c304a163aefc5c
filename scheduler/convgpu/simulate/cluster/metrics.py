"""Figures of a simulated run. Times in seconds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from convgpu.simulate.cluster.jobs import Job


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a run amounted to.

    Attributes:
        completion: mean seconds from submission to end (JCT); `completion_p95` and `completion_p99` percentiles of it.
        wait: mean seconds in which a job did not run.
        makespan: seconds from the first submission to the last end.
        occupied: share of all cards' time, until the last end, that jobs took by their request.
        preemptions: how often a job was stopped.
        rho: mean of completion divided by duration alone (finish-time fairness against an empty cluster); jobs of
            less than a second are left out.
    """

    jobs: int
    completion: float
    completion_p95: float
    completion_p99: float
    wait: float
    makespan: float
    occupied: float
    preemptions: int
    rho: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` percent of the ordered values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def measure(jobs: Sequence[Job], cards: int) -> Metrics:
    """Return the figures of ended jobs on so many cards.

    Raises:
        ValueError: there is no job.
    """
    if not jobs:
        raise ValueError("the trace has no jobs")
    completions = sorted(job.completion for job in jobs)
    begin, end = min(job.submitted for job in jobs), max(job.ended for job in jobs)
    long = [job for job in jobs if job.request.duration >= 1]
    taken = sum(job.request.duration * job.request.cards * job.request.memory for job in jobs)
    return Metrics(
        jobs=len(jobs),
        completion=fmean(completions),
        completion_p95=percentile(completions, 95),
        completion_p99=percentile(completions, 99),
        wait=fmean(job.waited for job in jobs),
        makespan=end - begin,
        occupied=taken / (cards * (end - begin)) if end > begin else 0.0,
        preemptions=sum(job.preemptions for job in jobs),
        rho=fmean(job.completion / job.request.duration for job in long) if long else 1.0,
    )
