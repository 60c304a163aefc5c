"""Rankings by what remains of a job: by seconds, and by GPU-seconds. Both must know or predict durations."""

import math
from typing import ClassVar

from convgpu.ranking.base import RankableJob


class ShortestRemainingTime:
    """Serves the job that will end first (SRTF)."""

    name: ClassVar[str] = "shortest-remaining-time"

    def place(self, job: RankableJob) -> tuple[float, ...]:
        """Return the remaining seconds."""
        return (job.remaining,)

    def next_change(self, job: RankableJob) -> float:  # noqa: ARG002  nothing of the job matters
        """Return infinity: running only brings a job forward."""
        return math.inf


class ShortestRemainingService:
    """Serves the job that needs the fewest GPU-seconds more (SRSF)."""

    name: ClassVar[str] = "shortest-remaining-service"

    def place(self, job: RankableJob) -> tuple[float, ...]:
        """Return the remaining GPU-seconds."""
        return (job.remaining * job.cards,)

    def next_change(self, job: RankableJob) -> float:  # noqa: ARG002  nothing of the job matters
        """Return infinity: running only brings a job forward."""
        return math.inf
