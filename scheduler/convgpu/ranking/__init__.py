"""Order of the jobs of a cluster: who runs before whom; pure. docs/simulation.md compares them.

The simulator and the controller of a Slurm cluster ask the same code. A ranking gets jobs and gives their order; it
places nothing, stops nothing and knows no cluster.
"""

from convgpu.ranking.base import RankableJob, Ranking, order
from convgpu.ranking.first_come import FirstCome
from convgpu.ranking.history import History, JobKind
from convgpu.ranking.least_attained import TIRESIAS_LEVELS, LeastAttainedService, geometric_levels
from convgpu.ranking.shortest_remaining import ShortestRemainingService, ShortestRemainingTime

__all__ = [
    "TIRESIAS_LEVELS",
    "FirstCome",
    "History",
    "JobKind",
    "LeastAttainedService",
    "RankableJob",
    "Ranking",
    "ShortestRemainingService",
    "ShortestRemainingTime",
    "geometric_levels",
    "order",
]
