"""Policy `random`: by lot."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from convgpu.policies.memory.base import Waiting

_MASK: Final = (1 << 64) - 1


class RandomLot:
    """Serves the container that draws the smallest lot, and within it the oldest allocation first.

    A container draws with its oldest waiting allocation, and keeps the lot until that is served: so the answer does
    not depend on how often it is asked for.

    Args:
        seed: 64 bits. The same seed gives the same lots.
    """

    name: ClassVar[str] = "random"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def rank(self, waiting: Sequence[Waiting], free: Mapping[str, int]) -> Sequence[Waiting]:  # noqa: ARG002
        """Smallest lot of the container, then oldest allocation."""
        oldest: dict[str, int] = {}
        for one in waiting:
            oldest[one.container] = min(one.sequence, oldest.get(one.container, one.sequence))
        return sorted(waiting, key=lambda one: (self._lot(oldest[one.container]), one.sequence))

    def _lot(self, sequence: int) -> int:
        """Number `sequence` of the generator splitmix64 (S. Vigna, public domain)."""
        lot = (self._seed + sequence * 0x9E3779B97F4A7C15) & _MASK
        lot = (lot ^ (lot >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        lot = (lot ^ (lot >> 27)) * 0x94D049BB133111EB & _MASK
        return lot ^ (lot >> 31)
