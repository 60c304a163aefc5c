"""Ranking `history`: the expected remaining service where the kind of a job is known, its level where it is not.

Recurrent jobs make most of a cluster's work, and their past durations predict as well as an oracle for the mean
(Alibaba PAI's published simulations). A job that outlives its prediction is judged by what it attained, as every
unknown job: a bad prediction costs a place once and starves nobody.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar, Final

from convgpu.ranking.base import RankableJob
from convgpu.ranking.least_attained import LeastAttainedService

LEAST_RUNS: Final = 3  # ended runs before a kind is known
MOST_RUNS: Final = 20  # older runs are forgotten: programs change


@dataclass(frozen=True, slots=True)
class JobKind:
    """What makes two jobs runs of the same work."""

    user: str
    image: str
    command: str
    cards: int


@dataclass(slots=True)
class Durations:
    """The durations of the ended runs of each kind, in seconds, the newest last."""

    runs: dict[JobKind, list[float]] = field(default_factory=dict)

    def add(self, kind: JobKind, seconds: float) -> None:
        """Remember an ended run."""
        known = self.runs.setdefault(kind, [])
        known.append(seconds)
        del known[:-MOST_RUNS]

    def expected(self, kind: JobKind) -> float:
        """Return the median duration of a kind; infinity where it is not known yet."""
        known = self.runs.get(kind, [])
        return median(known) if len(known) >= LEAST_RUNS else math.inf


class History:
    """Serves by expected remaining GPU-seconds or by attained ones, whichever is known; the least first."""

    name: ClassVar[str] = "history"

    def __init__(self, levels: Sequence[float]) -> None:
        """`levels`: upper bounds in GPU-seconds of the levels for jobs without a prediction."""
        self._unknown = LeastAttainedService(levels)
        self._bounds = (0.0, *levels)

    def place(self, job: RankableJob) -> tuple[float, ...]:
        """Return the service that the job is expected to need, and whether it waits."""
        return (self._expected_service(job), not job.running)

    def next_change(self, job: RankableJob) -> float:
        """Return the seconds until a job without a prediction changes its level."""
        return self._unknown.next_change(job) if math.isinf(job.remaining) else math.inf

    def _expected_service(self, job: RankableJob) -> float:
        if math.isinf(job.remaining):
            return self._bounds[self._unknown.level(job)]
        return job.remaining * job.cards
