"""What the driver says that processes hold, held against the book; pure.

NVML counts a little more for a process than the hook charges: code of modules, what libraries take (92 MiB for PyTorch,
162 MiB with `cudaMallocAsync`: docs/measurements.md). So much is tolerated for each process that has a session and
counted nowhere; `CONVGPU_RESERVE` is the place for it. Compared is with the lease, not the usage: what a process took
between two looks was leased to it before. Only what two looks find one after the other counts.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

# More than any library was seen to take beyond what is charged.
TOLERATED: Final = 256 << 20
# Smaller changes are not worth a decision.
NOISE: Final = 16 << 20
# The driver takes a little for each process and counts it for nobody (9 MiB on an H200).
UNCOUNTED: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Look:
    """What NVML says of one device: its bytes, those in use by anybody, and by living processes.

    `held` is None when the driver cannot tell; `error` says what is wrong with the device.
    """

    device: str
    total: int = 0
    used: int = 0
    held: Mapping[int, int] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """On one device, in bytes. By container: held in all, tolerated, and beyond its leases. And by foreigners.

    `unheld`: in use, and held by no process, at most; `unattributed`: at least.
    """

    seen: Mapping[str, int]
    tolerated: Mapping[str, int]
    beyond: Mapping[str, int]
    foreign: int
    unheld: int
    unattributed: int


def attribute(
    used: int,
    held: Mapping[int, int],
    lease: Mapping[int, int],
    volume_of: Callable[[int], str | None],
    managed: int = 0,
) -> Found:
    """Say who holds what of a device.

    Args:
        used: bytes in use by anybody.
        held: bytes by the pid of each living process.
        lease: bytes by the pid of each process that has a session.
        volume_of: the container of a pid, None for a foreign process.
        managed: bytes that processes use by our book and the driver lists for nobody (managed memory).
    """
    seen: dict[str, int] = defaultdict(int)
    tolerated: dict[str, int] = defaultdict(int)
    beyond: dict[str, int] = defaultdict(int)
    foreign = 0
    for pid, size in held.items():
        volume = volume_of(pid)
        if volume is None:
            foreign += size
            continue
        seen[volume] += size
        allowance = TOLERATED if pid in lease else 0
        tolerated[volume] += allowance
        excess = size - lease.get(pid, 0)
        if excess > allowance:
            beyond[volume] += excess
    unheld = max(used - sum(held.values()), 0)
    unattributed = max(unheld - managed - UNCOUNTED * len(held), 0)
    return Found(dict(seen), dict(tolerated), dict(beyond), foreign, unheld, unattributed)


def lasting(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return what was found twice, by container."""
    return {volume: min(size, before[volume]) for volume, size in now.items() if volume in before}


def is_news(old: int, new: int) -> bool:
    """Is a figure different enough to decide anew? All that ends, and what is not noise."""
    return (new == 0 and old != 0) or abs(new - old) >= NOISE


class Overuse:
    """Accounts (container, device) above their limit, and since when.

    Args:
        after: seconds that a container may stay there.
    """

    def __init__(self, after: float) -> None:
        self._after = after
        self._since: dict[tuple[str, str], float] = {}

    def look(self, over: set[tuple[str, str]], now: float) -> tuple[set[tuple[str, str]], set[str]]:
        """Return what is above its limit since this look, and the containers that have been there for too long."""
        fresh = over - self._since.keys()
        self._since = {one: self._since.get(one, now) for one in over}
        return fresh, {container for (container, _), since in self._since.items() if now - since >= self._after}
