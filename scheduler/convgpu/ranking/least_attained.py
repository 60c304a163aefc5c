"""Ranking `least-attained-service`: who got least is served first, in levels; no duration has to be known.

Tiresias (NSDI'19) calls it discretised two-dimensional LAS: service is GPUs times seconds, and levels instead of a
continuous order keep jobs from displacing each other again and again.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar, Final

from convgpu.ranking.base import RankableJob

TIRESIAS_LEVELS: Final = (3250.0, 7200.0)  # GPU-seconds, as the reference simulator has them


def geometric_levels(first: float = 3250.0, factor: float = 4.0, count: int = 8) -> tuple[float, ...]:
    """Return the upper bounds, in GPU-seconds, of all levels but the last: `first`, then each `factor` times more.

    Raises:
        ValueError: a bound would not grow, or there is no level.
    """
    if first <= 0 or factor <= 1 or count < 1:
        raise ValueError(f"levels need first > 0, factor > 1 and count >= 1, not {first:g}, {factor:g}, {count}")
    return tuple(first * factor**level for level in range(count - 1))


class LeastAttainedService:
    """Serves the lowest level first; inside a level whoever runs goes on, then the order given."""

    name: ClassVar[str] = "least-attained-service"

    def __init__(self, levels: Sequence[float] = TIRESIAS_LEVELS) -> None:
        """`levels`: upper bounds in GPU-seconds, rising; the last level has none."""
        self._levels = tuple(levels)

    def level(self, job: RankableJob) -> int:
        """Return the job's level; 0 is served first."""
        return bisect_right(self._levels, job.attained)

    def place(self, job: RankableJob) -> tuple[float, ...]:
        """Return the level, and whether the job waits."""
        return (self.level(job), not job.running)

    def next_change(self, job: RankableJob) -> float:
        """Return the seconds until the running job has the service of the next level."""
        level = self.level(job)
        if level == len(self._levels):
            return math.inf
        return (self._levels[level] - job.attained) / job.cards
