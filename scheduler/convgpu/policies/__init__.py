"""Which waiting allocation is served next; pure. Semantics: docs/policies.md."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from convgpu.policies.base import Policy, Waiting
from convgpu.policies.best_fit import BestFit
from convgpu.policies.fifo import Fifo

__all__ = ["POLICIES", "BestFit", "Fifo", "Policy", "Waiting"]

POLICIES: Final[Mapping[str, type[Policy]]] = MappingProxyType({"fifo": Fifo, "best-fit": BestFit})
