"""Eviction policies: whose memory leaves a device first; pure. docs/policies.md describes each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from convgpu.policies.eviction.base import EvictionPolicy, Victim
from convgpu.policies.eviction.fewest import Fewest
from convgpu.policies.eviction.longest import Longest
from convgpu.policies.eviction.smallest import Smallest
from convgpu.policies.eviction.youngest import Youngest

__all__ = [
    "DEFAULT_EVICTION",
    "EVICTION_POLICIES",
    "EvictionPolicy",
    "Fewest",
    "Longest",
    "Smallest",
    "Victim",
    "Youngest",
]

EVICTION_POLICIES: Final[Mapping[str, EvictionPolicy]] = MappingProxyType(
    {policy.name: policy for policy in (Fewest(), Longest(), Smallest(), Youngest())}
)
DEFAULT_EVICTION: Final = Youngest.name
