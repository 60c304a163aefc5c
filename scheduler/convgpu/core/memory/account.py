"""One container on one device: what it may hold, what is set aside for it, and what its processes lease."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.memory.high_water_marks import HighWaterMarks

_NO_LEASES: Final[Mapping[int, int]] = MappingProxyType({})


class AccountView(msgspec.Struct, frozen=True):
    """An account as it was when it was read; all figures in bytes.

    Attributes:
        limit: the most that the container may use on the device.
        grant: set aside for the container so far.
        leased: the part of the grant that its processes may use without asking.
        charged: unleased memory, which counts against the limit.
        target: a limit that was asked for and is not in force yet, or None.
        leases: what is leased to each session.
        learned: a smaller limit by which it is reckoned with, because it needed no more for a while; or None.
    """

    limit: int
    grant: int
    leased: int
    charged: int
    target: int | None
    leases: Mapping[int, int]
    learned: int | None = None

    @property
    def held(self) -> int:
        """Held by processes, leased or not: what counts against the limit."""
        return self.leased + self.charged

    @property
    def idle(self) -> int:
        """Granted, and leased to no process."""
        return self.grant - self.leased


@dataclass(slots=True)
class Account:
    """An account that the ledger changes; the attributes are those of AccountView.

    Attributes:
        high_water_marks: what was leased before it became less; None before the first time.
    """

    limit: int
    grant: int = 0
    leased: int = 0
    charged: int = 0
    target: int | None = None
    leases: dict[int, int] = field(default_factory=dict)
    high_water_marks: HighWaterMarks | None = None
    learned: int | None = None

    @property
    def expected(self) -> int:
        """The most that it is expected to need: the learned limit, or the limit."""
        return self.limit if self.learned is None else min(self.learned, self.limit)

    @property
    def held(self) -> int:
        """Held by processes, leased or not: what counts against the limit."""
        return self.leased + self.charged

    @property
    def idle(self) -> int:
        """Granted, and leased to no process."""
        return self.grant - self.leased

    def record_high_water_mark(self, newest: int) -> None:
        """Record what is leased, which is about to become less; `newest`: the newest allocation that waits."""
        if self.leased:
            self.high_water_marks = self.high_water_marks or HighWaterMarks()
            self.high_water_marks.record(newest, self.leased)

    def high_water_mark_since(self, oldest: int) -> int:
        """Return the most bytes that were leased since allocation `oldest`, the oldest that waits, began to wait."""
        past = self.high_water_marks.since(oldest) if self.high_water_marks else 0
        return max(past, self.leased)

    def view(self) -> AccountView:
        """Return a copy that never changes."""
        leases = MappingProxyType(self.leases.copy()) if self.leases else _NO_LEASES
        return AccountView(self.limit, self.grant, self.leased, self.charged, self.target, leases, self.learned)

    def check(self, name: str, *, is_overcommitted: bool) -> None:
        """Check what concerns this account alone; `is_overcommitted`: its device is.

        Raises:
            InvariantBrokenError: invariant 1 does not hold.
        """
        leases = self.leases.values()
        if min(leases, default=0) < 0 or sum(leases) != self.leased:
            raise InvariantBrokenError(f"leases of {name}: {self}")
        is_above = self.grant + self.charged > self.limit
        if not 0 <= self.leased <= self.grant or (is_above and self.idle):
            raise InvariantBrokenError(f"not 0 <= leased <= grant <= limit: {name}: {self}")
        if is_overcommitted and self.idle:
            raise InvariantBrokenError(f"idle grant on an overcommitted device: {name}")
