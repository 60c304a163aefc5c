"""Attribution: which container, if any, holds the memory that NVML counts on a device; pure.

NVML counts a little more for a process than the hook charges yet: code of modules, and what libraries take (92 MiB for
PyTorch, 162 MiB with `cudaMallocAsync`, until the hook looks again: docs/measurements.md). That much is tolerated for
each process with a session, up to a part of what all of a container's have leased, and counted nowhere;
`CONVGPU_RESERVE` makes room for it. NVML's count is compared with the lease and not with the usage: what a process
allocated between two samples was leased to it before. Only what two samples in a row show counts.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

# More than any library was seen to take beyond what is charged.
TOLERATED: Final = 256 << 20
# The part of what a container has leased that is tolerated beyond it, if that is more than for one process.
_PART: Final = 8
# A smaller change of a figure leads to no new decision.
NOISE: Final = 16 << 20
# For a context the driver takes a little more than it lists: on an H200 5.8 to 8.8 MiB beside 518. For others it takes
# nothing (decision 233). So it is a part of what is listed, too: else who has many small processes would hide what
# nobody has behind them.
UNCOUNTED: Final = 16 << 20
_LISTED_PART: Final = 16
_FEW: Final = 4  # processes for which that is taken to be so where what no process has is to be found
# More bytes than there are anywhere: all that is nobody's.
ALL: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Told:
    """What the driver told within PID namespaces of the memory that is listed with one pid.

    Attributes:
        own: bytes of each process that has the pid or had it, by its start in clock ticks since boot. Who is missing,
            nobody was told of.
        others: bytes of all others together, at least.
        disturbed: the starts of processes in whose namespace who asked was ended or stopped, each time.
        unasked: what was told last of those who could be asked and were not, for want of time, likewise; None: nothing.
    """

    own: Mapping[int, int]
    others: int = 0
    disturbed: AbstractSet[int] = frozenset()
    unasked: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemorySample:
    """What NVML says of one device at one moment, in bytes.

    Attributes:
        device: UUID.
        total: of the device.
        used: in use by anybody.
        held: by the pid of each living process; None when the driver does not tell.
        error: what is wrong with the device, None when nothing is.
        ended: by the pid of each process that is listed though it has ended.
        starts: when each living process started, in clock ticks since boot.
        asked: seconds on the monotonic clock, before that moment.
        answered: likewise, after it.
        listed: what NVML lists with the pid of each living process, where `held` has more, for it was found otherwise;
            None: the same.
        told: what is known of pids which several processes had.
        exiting: the pids among `ended` whose processes are not through with it.
        imported: by pid, bytes of `held` that were added because living processes imported what is nobody's.
    """

    device: str
    total: int = 0
    used: int = 0
    held: Mapping[int, int] | None = None
    error: str | None = None
    ended: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    asked: float = math.inf
    answered: float = -math.inf
    listed: Mapping[int, int] | None = None
    told: Mapping[int, Told] = field(default_factory=dict)
    exiting: AbstractSet[int] = frozenset()
    imported: Mapping[int, int] = field(default_factory=dict)

    def listed_with(self, pid: int) -> int:
        """Return the bytes that NVML lists with a pid."""
        living = self.held if self.listed is None else self.listed
        return self.ended.get(pid, 0) or (living or {}).get(pid, 0)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a process is.

    Attributes:
        volume: of its container, None for an external process.
        container: the Engine's id of that, None for a process of the host's.
        has_session: it is connected.
        is_known: it was seen while it lived.
    """

    volume: str | None = None
    container: str | None = None
    has_session: bool = False
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Kept:
    """Memory of a process that has ended, which stays on the device for others have its descriptor of the driver open.

    Attributes:
        pid: that it had; somebody else may have it now.
        size: bytes.
        owner: whose the process was.
        is_left: its container has ended, too, or nobody knows whose it was: nobody is charged for it.
        is_ending: it ended just now, and the driver may be about to free its memory.
        is_exiting: likewise, and the kernel has not closed all of its files yet.
        counted: bytes that its container's limit counts anyway, for the process has a lease still, or is ending.
    """

    pid: int
    size: int
    owner: Owner
    is_left: bool
    is_ending: bool = False
    is_exiting: bool = False
    counted: int = 0


@dataclass(frozen=True, slots=True)
class Attribution:
    """A sample of one device by owner, in bytes.

    Attributes:
        seen: NVML's count for each container.
        tolerated: what each container with a session may hold beyond its leases.
        unleased: what each container holds beyond its leases and beyond what is tolerated. A process that alone holds
            more than is tolerated for one is charged in full.
        external: held by processes outside of ConvGPU.
        unheld: in use and held by no process, at most.
        unattributed: the same, at least.
        without_process: in use and held by no process that lives, at least, where there are few; managed memory may be
            among it. Many are not believed to have as much more each: who makes them would hide what nobody has.
        managed: what is used by our ledger, and listed for nobody.
        imported: what each container holds beyond its leases because its processes imported it, and the driver lists
            for nobody.
    """

    seen: Mapping[str, int]
    tolerated: Mapping[str, int]
    unleased: Mapping[str, int]
    external: int
    unheld: int
    unattributed: int
    without_process: int
    managed: int = 0
    imported: Mapping[str, int] = field(default_factory=dict)


def attribute(
    used: int,
    held: Mapping[int, int],
    lease: Mapping[int, int],
    container_of: Callable[[int], str | None],
    managed: int = 0,
    kept: Sequence[Kept] = (),
    imported: Mapping[int, int] = MappingProxyType({}),
) -> Attribution:
    """Attribute the memory of one device to its owners.

    Args:
        used: bytes in use by anybody.
        held: bytes by the pid of each living process.
        lease: bytes by the pid of each process that has a session.
        container_of: the container of a pid, None for an external process.
        managed: bytes that are used by our ledger and the driver lists for none (managed memory, what ended ones left).
        kept: memory of processes that have ended. Their containers are charged with it as long as they run.
        imported: by pid, bytes of `held` that the driver lists for nobody: who lets go of them leaves them to others.
    """
    tally, external, imports = _Tally(), 0, Counter[str]()
    for pid, size in held.items():
        container = container_of(pid)
        if container is None:
            external += size
        else:
            tally.add(container, size, lease.get(pid))
            imports[container] += min(imported.get(pid, 0), max(size - lease.get(pid, 0), 0))
    known = [*held.values(), *(one.size for one in kept if not (one.is_left and one.is_ending))]
    for one in kept:
        if not one.is_left:
            tally.add_kept(one)
        elif not one.is_ending:
            external += one.size
    unheld = max(used - sum(known), 0)
    unattributed = max(unheld - managed - uncounted(known), 0)
    tolerated = {name: tolerate(sizes) for name, sizes in tally.leased.items()}
    dead = max(used - sum(held.values()) + sum(imported.values()) - min(uncounted(held.values()), _FEW * UNCOUNTED), 0)
    unleased = tally.unleased(tolerated)
    return Attribution(dict(tally.seen), tolerated, unleased, external, unheld, unattributed, dead, managed, +imports)


def uncounted(listed: Iterable[int]) -> int:
    """Return how many bytes the driver may take for processes beyond what it lists for each of them."""
    return sum(min(UNCOUNTED, size // _LISTED_PART) for size in listed)


def tolerate(leased: Sequence[int]) -> int:
    """Return how many bytes beyond its leases a container may hold on a device, by what each of its processes leased.

    One process may as much as any library was seen to take. What many take together is bounded by what they lease,
    which their limit bounds: a process more makes room for itself only. Who uses a library has a context, which is
    leased: without it many containers with next to no limit would have as much each.
    """
    return min(len(leased) * TOLERATED, max(TOLERATED, sum(leased) // _PART), sum(leased) // 2)


def beyond(
    kept: Sequence[Kept], found: Mapping[Owner, int], lately: Mapping[str, int] = MappingProxyType({})
) -> dict[Owner, int]:
    """Return what was found of dead ones of containers, without what is charged to them already.

    It is compared by container, and not by process: a dead one has another pid in each PID namespace, and births may
    have told whose it was. What a container left behind before it was started again, nobody finds within it.

    Args:
        kept: memory of the dead as it is listed.
        found: bytes that all dead ones of each container hold.
        lately: the most that was listed for dead ones of each volume while that was found.
    """
    charged: dict[str | None, int] = defaultdict(int)
    for one in kept:
        charged[one.owner.volume] += one.size if not one.is_left else 0
    for name, size in lately.items():
        charged[name] = max(charged[name], size)
    rest = {}
    for owner, size in found.items():
        known = min(size, charged[owner.volume])
        charged[owner.volume] -= known
        rest[owner] = size - known
    return {owner: size for owner, size in rest.items() if size}


def claim(kept: Sequence[Kept], found: Mapping[Owner, int], unlisted: int) -> list[Kept]:
    """Return the memory of the dead, with what was found to be of dead ones of containers that nobody saw.

    What is listed of unknown ones is the same, as far as it is as much. What was found may have been freed since: it is
    no more than what is nobody's now. Who has all of that (`ALL`) has what is left.

    Args:
        kept: memory of the dead as it is listed.
        found: bytes by container, as `beyond` returns them.
        unlisted: bytes in use that are listed for nobody, and not the driver's.
    """
    nobodys = sum(one.size for one in kept if not one.owner.is_known)
    claims, room = list[Kept](), nobodys + unlisted
    for owner, size in sorted(found.items(), key=lambda row: row[1]):
        if share := min(size, room):
            claims.append(Kept(0, share, owner, is_left=False))
            room -= share
    rows, left = list[Kept](), nobodys + unlisted - room
    for one in kept:
        part = min(one.size, left) if not one.owner.is_known else 0
        left -= part
        if one.size > part or not part:
            rows.append(replace(one, size=one.size - part))
    return rows + claims


class _Tally:
    """Adds up by container what processes hold of a device.

    Attributes:
        seen: bytes.
        leased: what each process with a session may have.
    """

    def __init__(self) -> None:
        self.seen: dict[str, int] = defaultdict(int)
        self.leased: dict[str, list[int]] = defaultdict(list)
        self._little: dict[str, int] = defaultdict(int)  # beyond leases, each no more than is tolerated for one
        self._charged: dict[str, int] = defaultdict(int)

    def add(self, container: str, size: int, lease: int | None) -> None:
        """Add what a process holds; without a session it has no lease."""
        self.seen[container] += size
        excess = max(size - (lease or 0), 0)
        if lease is not None:
            self.leased[container].append(lease)
        which = self._charged if lease is None or excess > TOLERATED else self._little
        which[container] += excess

    def add_kept(self, kept: Kept) -> None:
        """Add memory of an ended process to what its container holds, also just after its end.

        A process has ended for the kernel only when the driver has freed what nobody keeps. Who made one after another
        that ends, and keeps the memory of each for a moment, would hold it for ever. While it exits, the driver may be
        freeing it: it is seen then, but its container's next program is not refused for it.
        """
        volume = kept.owner.volume or ""
        excess = max(kept.size - kept.counted, 0)
        if not kept.is_exiting:
            which = self._little if kept.counted and excess <= TOLERATED else self._charged
            which[volume] += excess
        self.seen[volume] += kept.size
        if kept.owner.has_session:  # what it leased is returned: what it had, comes nearest to that
            self.leased[volume].append(kept.size)

    def unleased(self, tolerated: Mapping[str, int]) -> dict[str, int]:
        """Return what each container holds beyond its leases, and beyond what is tolerated of little."""
        more = {name: max(size - tolerated[name], 0) for name, size in self._little.items()}
        sizes = {name: self._charged.get(name, 0) + more.get(name, 0) for name in self._charged.keys() | more.keys()}
        return {name: size for name, size in sizes.items() if size}


def lasting(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return by container what two samples in a row show: the smaller figure of both."""
    return {container: min(size, before[container]) for container, size in now.items() if container in before}


def is_significant(old: int, new: int) -> bool:
    """Say whether a figure changed enough to decide again: it became zero, or changed by more than noise."""
    return (new == 0 and old != 0) or abs(new - old) >= NOISE
