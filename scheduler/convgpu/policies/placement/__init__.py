"""Placement policies: which devices a container gets; pure. docs/policies.md describes each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from convgpu.policies.placement.base import Candidate, PlacementPolicy
from convgpu.policies.placement.best_fit import BestFit
from convgpu.policies.placement.least_fragmentation import LeastFragmentation
from convgpu.policies.placement.least_promised import LeastPromised
from convgpu.policies.placement.spread import Spread

__all__ = [
    "DEFAULT_PLACEMENT",
    "PLACEMENT_POLICIES",
    "BestFit",
    "Candidate",
    "LeastFragmentation",
    "LeastPromised",
    "PlacementPolicy",
    "Spread",
]

PLACEMENT_POLICIES: Final[Mapping[str, PlacementPolicy]] = MappingProxyType(
    {policy.name: policy for policy in (BestFit(), LeastFragmentation(), LeastPromised(), Spread())}
)
DEFAULT_PLACEMENT: Final = LeastPromised.name
