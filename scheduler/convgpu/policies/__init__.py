"""Which waiting allocation is served next; pure. Semantics: docs/policies.md."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from convgpu.policies.base import Policy, Rng, Waiting
from convgpu.policies.best_fit import BestFit
from convgpu.policies.fifo import Fifo
from convgpu.policies.random_lot import RandomLot
from convgpu.policies.recent_use import RecentUse

__all__ = ["POLICIES", "BestFit", "Fifo", "Policy", "RandomLot", "RecentUse", "Rng", "Waiting"]

POLICIES: Final[Mapping[str, Callable[[Rng], Policy]]] = MappingProxyType(
    {
        BestFit.name: lambda _: BestFit(),
        Fifo.name: lambda _: Fifo(),
        RandomLot.name: RandomLot,
        RecentUse.name: lambda _: RecentUse(),
    }
)
