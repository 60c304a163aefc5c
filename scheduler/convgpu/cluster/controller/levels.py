"""From service to the number that Slurm adds to a job's priority (SiteFactor). Pure.

Levels are far apart, so that a site's own weights (age, fair share) decide inside a level. Inside a level who runs goes
on: half a level keeps those who wait from displacing it as they age. What Slurm cannot queue again is not displaced.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.ranking import History, Ranking

STEP: Final = 100_000
RUNNING: Final = STEP // 2


@dataclass(frozen=True, slots=True)
class Ranked:
    """A job as `convgpu.ranking` sees it."""

    submitted: float
    cards: float
    attained: float
    remaining: float
    running: bool


class Levels:
    """Levels of service in card-seconds, the lowest first, and their numbers."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper bounds of all levels but the last."""
        self.bounds = tuple(bounds)
        self.count = len(self.bounds) + 1
        self._ranking: Ranking = History(self.bounds)

    def level(self, job: Ranked) -> int:
        """Return the level of a job, 0 is served first: by what it is expected to need, or by what it had."""
        return bisect_right(self.bounds, self._ranking.place(job)[0])

    def factor(self, level: int, *, running: bool, displaceable: bool) -> int:
        """Return the number for Slurm; the highest goes first."""
        if running and not displaceable:
            return (self.count + 1) * STEP
        return (self.count - level) * STEP + (RUNNING if running else 0)
