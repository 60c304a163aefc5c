"""Eviction policy `youngest`: the container that arrived last."""

from collections.abc import Sequence
from typing import ClassVar

from convgpu.policies.eviction.base import Victim


class Youngest:
    """Moves the container that arrived last: where the oldest have their turn first, it is the last to come back."""

    name: ClassVar[str] = "youngest"

    def rank(self, victims: Sequence[Victim], lacking: int) -> Sequence[Victim]:  # noqa: ARG002
        """Order by arrival, last first."""
        return sorted(victims, key=lambda v: -v.container_order)
