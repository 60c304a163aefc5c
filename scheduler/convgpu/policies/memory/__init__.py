"""Memory policies: which waiting allocation is served next; pure. docs/policies.md describes each."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from convgpu.policies.memory.base import Policy, WaitingAllocation
from convgpu.policies.memory.best_fit import BestFit
from convgpu.policies.memory.fifo import Fifo
from convgpu.policies.memory.random_choice import RandomChoice
from convgpu.policies.memory.recent_use import RecentUse

__all__ = ["POLICIES", "BestFit", "Fifo", "Policy", "RandomChoice", "RecentUse", "WaitingAllocation", "make_policy"]

POLICIES: Final[Mapping[str, Callable[[int], Policy]]] = MappingProxyType(
    {
        BestFit.name: lambda _: BestFit(),
        Fifo.name: lambda _: Fifo(),
        RandomChoice.name: RandomChoice,
        RecentUse.name: lambda _: RecentUse(),
    }
)


def make_policy(name: str, seed: int) -> Policy:
    """Return the policy of that name; `seed`: 64 bits, for one that chooses at random.

    Raises:
        KeyError: there is no such policy.
    """
    return POLICIES[name](seed)
