"""Policy `random`: a random container."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from convgpu.policies.memory.base import WaitingAllocation

_MASK: Final = (1 << 64) - 1


class RandomChoice:
    """Serves the container with the smallest random number, and within it the oldest allocation first.

    The number belongs to the container's oldest waiting allocation and stays the same until that is served: so the
    answer does not depend on how often the policy is asked.

    Args:
        seed: 64 bits. The same seed gives the same numbers.
    """

    name: ClassVar[str] = "random"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def rank(self, waiting: Sequence[WaitingAllocation], free: Mapping[str, int]) -> Sequence[WaitingAllocation]:  # noqa: ARG002
        """Order by random number of the container, then by age."""
        oldest: dict[str, int] = {}
        for w in waiting:
            oldest[w.container] = min(w.sequence, oldest.get(w.container, w.sequence))
        return sorted(waiting, key=lambda w: (self._random_number(oldest[w.container]), w.sequence))

    def _random_number(self, sequence: int) -> int:
        """Return number `sequence` of the generator splitmix64 (S. Vigna, public domain)."""
        number = (self._seed + sequence * 0x9E3779B97F4A7C15) & _MASK
        number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
        return number ^ (number >> 31)
