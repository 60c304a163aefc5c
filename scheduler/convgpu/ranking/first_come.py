"""Ranking `first-come`: the order of submission."""

import math
from typing import ClassVar

from convgpu.ranking.base import RankableJob


class FirstCome:
    """Serves jobs in the order in which they were submitted; nothing is displaced."""

    name: ClassVar[str] = "first-come"

    def place(self, job: RankableJob) -> tuple[float, ...]:
        """Return the time of submission."""
        return (job.submitted,)

    def next_change(self, job: RankableJob) -> float:  # noqa: ARG002  nothing of the job matters
        """Return infinity: a place never changes."""
        return math.inf
