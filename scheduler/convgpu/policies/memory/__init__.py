"""Which waiting allocation is served next; pure. Semantics: docs/policies.md."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from convgpu.policies.memory.base import Policy, Rng, Waiting
from convgpu.policies.memory.best_fit import BestFit
from convgpu.policies.memory.fifo import Fifo
from convgpu.policies.memory.random_choice import RandomLot
from convgpu.policies.memory.recent_use import RecentUse

__all__ = ["POLICIES", "BestFit", "Fifo", "Policy", "RandomLot", "RecentUse", "Rng", "Waiting"]

POLICIES: Final[Mapping[str, Callable[[Rng], Policy]]] = MappingProxyType(
    {
        BestFit.name: lambda _: BestFit(),
        Fifo.name: lambda _: Fifo(),
        RandomLot.name: RandomLot,
        RecentUse.name: lambda _: RecentUse(),
    }
)
