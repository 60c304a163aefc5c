"""Attribution: which container, if any, holds the memory that NVML counts on a device; pure.

NVML counts a little more for a process than the hook charges: code of modules, and what libraries take (92 MiB for
PyTorch, 162 MiB with `cudaMallocAsync`: docs/measurements.md). That much is tolerated for each process with a session
and counted nowhere; `CONVGPU_RESERVE` makes room for it. NVML's count is compared with the lease and not with the
usage: what a process allocated between two samples was leased to it before. Only what two samples in a row show counts.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

# More than any library was seen to take beyond what is charged.
TOLERATED: Final = 256 << 20
# A smaller change of a figure leads to no new decision.
NOISE: Final = 16 << 20
# The driver takes a little for each process and counts it for none of them (9 MiB on an H200).
UNCOUNTED: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class MemorySample:
    """What NVML says of one device at one moment, in bytes.

    Attributes:
        device: UUID.
        total: of the device.
        used: in use by anybody.
        held: by the pid of each living process; None when the driver does not tell.
        error: what is wrong with the device, None when nothing is.
    """

    device: str
    total: int = 0
    used: int = 0
    held: Mapping[int, int] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Attribution:
    """A sample of one device by owner, in bytes.

    Attributes:
        seen: NVML's count for each container.
        tolerated: what each container may hold beyond its leases.
        unleased: what each container holds beyond its leases and beyond what is tolerated.
        external: held by processes outside of ConvGPU.
        unheld: in use and held by no process, at most.
        unattributed: the same, at least.
    """

    seen: Mapping[str, int]
    tolerated: Mapping[str, int]
    unleased: Mapping[str, int]
    external: int
    unheld: int
    unattributed: int


def attribute(
    used: int,
    held: Mapping[int, int],
    lease: Mapping[int, int],
    container_of: Callable[[int], str | None],
    managed: int = 0,
) -> Attribution:
    """Attribute the memory of one device to its owners.

    Args:
        used: bytes in use by anybody.
        held: bytes by the pid of each living process.
        lease: bytes by the pid of each process that has a session.
        container_of: the container of a pid, None for an external process.
        managed: bytes that processes use by our ledger and the driver lists for none of them (managed memory).
    """
    seen: dict[str, int] = defaultdict(int)
    tolerated: dict[str, int] = defaultdict(int)
    unleased: dict[str, int] = defaultdict(int)
    external = 0
    for pid, size in held.items():
        container = container_of(pid)
        if container is None:
            external += size
            continue
        seen[container] += size
        allowance = TOLERATED if pid in lease else 0
        tolerated[container] += allowance
        excess = size - lease.get(pid, 0)
        if excess > allowance:
            unleased[container] += excess
    unheld = max(used - sum(held.values()), 0)
    unattributed = max(unheld - managed - UNCOUNTED * len(held), 0)
    return Attribution(dict(seen), dict(tolerated), dict(unleased), external, unheld, unattributed)


def lasting(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return by container what two samples in a row show: the smaller figure of both."""
    return {container: min(size, before[container]) for container, size in now.items() if container in before}


def is_significant(old: int, new: int) -> bool:
    """Say whether a figure changed enough to decide again: it became zero, or changed by more than noise."""
    return (new == 0 and old != 0) or abs(new - old) >= NOISE


class OveruseTimer:
    """Knows since when each (container, device) is above its limit.

    Args:
        after: seconds after which a container has been above its limit for too long.
    """

    def __init__(self, after: float) -> None:
        self._after = after
        self._since: dict[tuple[str, str], float] = {}

    def update(self, over: set[tuple[str, str]], now: float) -> tuple[set[tuple[str, str]], set[str]]:
        """Return what is above its limit since this call, and the containers that have been there for too long."""
        fresh = over - self._since.keys()
        self._since = {key: self._since.get(key, now) for key in over}
        return fresh, {container for (container, _), since in self._since.items() if now - since >= self._after}
