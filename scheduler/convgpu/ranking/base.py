"""The interface of rankings: the jobs of a cluster go in, their order comes out."""

from collections.abc import Iterable
from typing import ClassVar, Protocol, TypeVar


class RankableJob(Protocol):
    """A job as a ranking sees it; the caller's own objects serve.

    Attributes:
        submitted: seconds, when the job was submitted.
        cards: GPUs that it takes; a part of one counts as that part.
        attained: GPU-seconds of service that count for its level; what was served long ago may be forgotten.
        remaining: seconds that it still has to run, known or predicted; `math.inf` where nothing is known.
        running: whether it runs now.
    """

    @property
    def submitted(self) -> float:
        """Seconds."""

    @property
    def cards(self) -> float:
        """Cards."""

    @property
    def attained(self) -> float:
        """GPU-seconds."""

    @property
    def remaining(self) -> float:
        """Seconds."""

    @property
    def running(self) -> bool:
        """Whether it runs now."""


class Ranking(Protocol):
    """Orders jobs; what comes first may displace what comes later.

    Pure: the same job gives the same place. Jobs with equal places keep the order in which they are given (`order`),
    so a caller that gives the last order with new jobs at its end gets an order without jitter.
    """

    name: ClassVar[str]

    def place(self, job: RankableJob) -> tuple[float, ...]:
        """Return the job's place; the smallest is served first. It changes only while the job runs."""
        ...

    def next_change(self, job: RankableJob) -> float:
        """Return in how many seconds of running a running job falls behind by itself; `math.inf`: never."""
        ...


AnyJob = TypeVar("AnyJob", bound=RankableJob)


def order(jobs: Iterable[AnyJob], ranking: Ranking) -> list[AnyJob]:
    """Return the jobs, the first to serve first."""
    return sorted(jobs, key=ranking.place)
