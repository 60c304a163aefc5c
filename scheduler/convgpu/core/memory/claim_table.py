"""The claims of all holders, and whether a container could end after them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from convgpu.core.memory import bankers
from convgpu.core.memory.bankers import Claim, Sizes


class ClaimTable(Protocol):
    """Keeps the claims of holders, and answers for grants by the Banker's algorithm over all of them.

    Theorem. Let the holders end one after the other while `s` bytes of device `d` are missing, and let A(s) be what is
    free when no more can, those `s` bytes included. A grant of `s` bytes of `d` to a container is safe if and only if
    the container's need *before* the grant fits into A(s). (If the container itself ended on the way, its need did fit;
    if not, the others alone led to A(s). The grant lowers its need and what is free by the same `s`.)
    """

    def put(self, container: str, claim: Claim | None) -> None:
        """Set the claim of a container; None when it holds nothing any more."""
        ...

    def can_end(self, need: Sizes, device: str, size: int, free: Mapping[str, int]) -> bool:
        """Return whether a grant of `size` bytes of a device to a container with this need is safe.

        `free`: bytes per device that are free now.
        """
        ...


MakeClaimTable = Callable[[Iterable[str]], ClaimTable]
"""Makes an empty table for devices."""


class PlainClaimTable:
    """A table that looks at each claim anew for each question.

    Args:
        devices: all that there are.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self._devices = tuple(devices)
        self._claims: dict[str, Claim] = {}
        self._in_order: list[Claim] | None = None

    def put(self, container: str, claim: Claim | None) -> None:
        """See ClaimTable."""
        self._in_order = None
        if claim is None:
            self._claims.pop(container, None)
        else:
            self._claims[container] = claim

    def can_end(self, need: Sizes, device: str, size: int, free: Mapping[str, int]) -> bool:
        """See ClaimTable."""
        if self._in_order is None:
            self._in_order = bankers.least_need_first(self._claims.values())
        work = {other: free[other] for other in self._devices}
        work[device] -= size
        bankers.finish_feasible(work, self._in_order)
        work[device] += size
        return all(lacking <= work[other] for other, lacking in need)
