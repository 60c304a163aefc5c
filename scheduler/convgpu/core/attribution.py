"""Attribution: which container, if any, holds the memory that NVML counts on a device; pure.

NVML counts a little more for a process than the hook charges: code of modules, and what libraries take (92 MiB for
PyTorch, 162 MiB with `cudaMallocAsync`: docs/measurements.md). That much is tolerated for each process with a session
and counted nowhere; `CONVGPU_RESERVE` makes room for it. NVML's count is compared with the lease and not with the
usage: what a process allocated between two samples was leased to it before. Only what two samples in a row show counts.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

# More than any library was seen to take beyond what is charged.
TOLERATED: Final = 256 << 20
# A smaller change of a figure leads to no new decision.
NOISE: Final = 16 << 20
# The driver takes a little for each process and counts it for none of them (9 MiB on an H200).
UNCOUNTED: Final = 16 << 20
# Seconds within the limit that take back one above it.
_TO_FORGET: Final = 5


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


class TakenReserves:
    """Knows what each container was charged, without a session that accounts for it, while nobody lacked anything.

    Who is charged clearly more than that where others lack what they were granted, or what is reserved for them, took
    it: the hook would have had it wait. What lacks for another reason, as external memory, is nobody's doing.
    """

    def __init__(self) -> None:
        self._innocent: dict[str, Mapping[str, int]] = {}

    def find(self, device: str, charged: Mapping[str, int], *, lacks: bool) -> set[str]:
        """Return the containers that took what others lack.

        Args:
            device: UUID; nobody took what is charged when it is first asked about.
            charged: unleased memory by container, in bytes.
            lacks: what was granted or is reserved lacks on the device, with what is charged.
        """
        innocent = charged
        if lacks:
            before = self._innocent.get(device, charged)
            innocent = {name: min(size, before.get(name, 0)) for name, size in charged.items()}
        self._innocent[device] = innocent
        return {name for name, size in charged.items() if size > innocent[name] + TOLERATED}


class OveruseTimer:
    """Counts how long each (container, device) is above its limit, over pauses.

    What a sample finds counts until the next one. Five seconds within the limit take back one that was counted: nobody
    is above it for more than about a sixth of the time, and moments are forgotten.

    Args:
        after: seconds above the limit after which a container has been there for too long.
    """

    def __init__(self, after: float) -> None:
        self._most = after * _TO_FORGET
        self._counted: dict[tuple[str, str], float] = {}  # fifths of seconds, at most twice as many as are too many
        self._over: AbstractSet[tuple[str, str]] = frozenset()
        self._at = 0.0

    def update(self, over: AbstractSet[tuple[str, str]], now: float) -> tuple[set[tuple[str, str]], set[str]]:
        """Return what is above its limit since this call, and the containers that are and have been for too long."""
        passed, self._at = now - self._at, now
        fresh, before, self._over = set(over - self._over), self._over, frozenset(over)
        for key, counted in list(self._counted.items()):
            more = passed * _TO_FORGET if key in before else -passed
            self._counted[key] = min(counted + more, 2 * self._most)
            if self._counted[key] <= 0:
                del self._counted[key]
        return fresh, {key[0] for key in over if self._counted.setdefault(key, 0.0) >= self._most}
