"""The schemes that are compared, by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from convgpu.ranking import FirstCome, LeastAttainedService, ShortestRemainingService, geometric_levels
from convgpu.simulate.cluster.engine import Scheme

ANY_NUMBER: Final = 1_000_000  # of jobs on a card: memory alone decides


def schemes(sharing: int = ANY_NUMBER, restart: float = 30.0) -> Mapping[str, Scheme]:
    """Return the schemes; `sharing`: jobs at most on a shared card; `restart`: seconds that a preemption costs."""
    attained = LeastAttainedService(geometric_levels())
    shortest = ShortestRemainingService()
    return MappingProxyType(
        {
            "exclusive-first-come": Scheme(FirstCome()),
            "exclusive-least-attained": Scheme(attained, backfill=True, preemptive=True, restart=restart),
            "shared-first-come": Scheme(FirstCome(), sharing, backfill=True),
            "shared-least-attained": Scheme(attained, sharing, backfill=True, preemptive=True, restart=restart),
            "shared-shortest": Scheme(
                shortest, sharing, backfill=True, preemptive=True, restart=restart, knows_durations=True
            ),
        }
    )
