"""How long a container keeps its turn: a switch may cost a share of the time, and no more."""

from math import inf
from typing import Final

from convgpu.core.residency.state import Rates

SWITCH_COST: Final = 0.05  # CONVGPU_SWITCH_COST: the share of the time that switches may take
LEAST: Final = 2.0  # seconds
MOST: Final = 300.0


def switch_seconds(out: int, into: int, rates: Rates) -> float:
    """Return the seconds of a switch in which so many bytes go out and others come in, one after the other."""
    return out / rates.out + into / rates.into + rates.drain


def quantum(switch: float, cost: float) -> float:
    """Return the seconds after which a running container may lose its turn to another of its priority.

    `cost`: the share of the time that switches may take; 0: no running container is ever stopped.
    """
    if cost <= 0:
        return inf
    return min(max(LEAST, switch * (1 - cost) / cost), MOST)


def least_quantum(switch: float) -> float:
    """Return the seconds that a running container has even if one of higher priority waits."""
    return max(LEAST, switch)
