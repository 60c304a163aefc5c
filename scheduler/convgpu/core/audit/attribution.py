"""Attribution: which container, if any, holds the memory that NVML counts on a device; pure.

NVML counts a little more for a process than the hook charges yet: code of modules, and what libraries take (92 MiB for
PyTorch, 162 MiB with `cudaMallocAsync`, until the hook looks again: docs/measurements.md). That much is tolerated for
each process with a session, up to a part of what all of a container's have leased, and counted nowhere;
`CONVGPU_RESERVE` makes room for it. NVML's count is compared with the lease and not with the usage: what a process
allocated between two samples was leased to it before. Only what two samples in a row show counts.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

# More than any library was seen to take beyond what is charged.
TOLERATED: Final = 256 << 20
# The part of what a container has leased that is tolerated beyond it, if that is more than for one process.
_PART: Final = 8
# A smaller change of a figure leads to no new decision.
NOISE: Final = 16 << 20
# The driver takes a little for each process and counts it for none of them (9 MiB on an H200).
UNCOUNTED: Final = 16 << 20
# Seconds that the driver may take to free what an ended process held (0.3 were seen for 100 GiB).
_FREED: Final = 1.0
# Seconds after which it is known whose child a process was.
_TOLD: Final = 5.0


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
    """

    pid: int
    size: int
    owner: Owner
    is_left: bool
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What NVML lists of one device, with the dead told from the living.

    Attributes:
        held: bytes by the pid of each living process.
        owners: of those.
        kept: memory of those that have ended.
    """

    held: Mapping[int, int]
    owners: Mapping[int, Owner]
    kept: Sequence[Kept]


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
    kept: Sequence[Kept] = (),
) -> Attribution:
    """Attribute the memory of one device to its owners.

    Args:
        used: bytes in use by anybody.
        held: bytes by the pid of each living process.
        lease: bytes by the pid of each process that has a session.
        container_of: the container of a pid, None for an external process.
        managed: bytes that processes use by our ledger and the driver lists for none of them (managed memory).
        kept: memory of processes that have ended. Their containers are charged with it as long as they run.
    """
    tally, external = _Tally(), 0
    for pid, size in held.items():
        container = container_of(pid)
        if container is None:
            external += size
        else:
            tally.add(container, size, lease.get(pid))
    known = [*held.values(), *(one.size for one in kept if not (one.is_left and one.is_ending))]
    for one in kept:
        if not one.is_left:
            tally.add_kept(one)
        elif not one.is_ending:
            external += one.size
    unheld = max(used - sum(known), 0)
    unattributed = max(unheld - managed - UNCOUNTED * len(known), 0)
    tolerated = {name: tolerate(sizes) for name, sizes in tally.leased.items()}
    return Attribution(dict(tally.seen), tolerated, tally.unleased(tolerated), external, unheld, unattributed)


def tolerate(leased: Sequence[int]) -> int:
    """Return how many bytes beyond its leases a container may hold on a device, by what each of its processes leased.

    One process may as much as any library was seen to take. What many take together is bounded by what they lease,
    which their limit bounds: a process more makes room for itself only.
    """
    return min(len(leased) * TOLERATED, max(TOLERATED, sum(leased) // _PART))


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
        that ends, and keeps the memory of each for a moment, would hold it for ever.
        """
        volume = kept.owner.volume or ""
        self._charged[volume] += kept.size
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


@dataclass(frozen=True, slots=True)
class _Listed:
    """A process as it was when it was last seen alive.

    Attributes:
        start: in clock ticks since boot; 0: nobody saw it alive.
        size: bytes; afterwards what is listed, but for what may be others' who had its pid since.
        owner: whose it is.
        ended: seconds on the clock of the caller at which it was found dead, infinite while it lives.
        is_left: its container was seen not to run since.
        since: seconds on the same clock at which its memory was not there yet.
        until: likewise, at which it was there.
        found: likewise, at which it was found first, if nobody saw it alive.
        foreign: bytes more that came while others had its pid, and may be theirs.
        beside: likewise, while one of another container has it.
        by: when that one started, in clock ticks since boot; 0: there is none that has the driver open.
    """

    start: int
    size: int
    owner: Owner
    ended: float = math.inf
    is_left: bool = False
    since: float = -math.inf
    until: float = -math.inf
    found: float = -math.inf
    foreign: int = 0
    beside: int = 0
    by: int = 0

    def kept(self, pid: int, size: int, now: float) -> Kept:
        """Return what it still has, once it has ended."""
        return Kept(pid, size, self.owner, self.is_left, is_ending=now - self.ended < _FREED)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What is asked about the processes of one sample.

    Attributes:
        owner_of: says whose a living process is.
        origin_of: says of an ended process whose it was that nobody saw alive, by its pid and two moments: its memory
            was not there yet, and it was there; not known if that cannot be told.
        lease_of: says what a process with a session may have on the device; None without one.
        runs: says of a volume whether its container runs.
        uses: says of a living process whether it has the driver open: who has not, holds nothing, though its pid is
            listed. Who keeps the memory of a dead one might make more of it.
        keeps: says of a volume whether a process of its container has the driver open, and so may keep memory.
    """

    owner_of: Callable[[int], Owner]
    origin_of: Callable[[int, float, float], Owner]
    lease_of: Callable[[int], int | None]
    runs: Callable[[str], bool]
    uses: Callable[[int], bool]
    keeps: Callable[[str], bool]


class ListedProcesses:
    """Remembers whose the processes are that NVML lists, for as long as it lists them without a gap.

    NVML lists an ended process while anybody has a copy of its descriptor of the driver. Its pid can be taken meanwhile
    by another process, which starts later: that is nobody who held the memory.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[int, _Listed]] = {}
        self._times: dict[str, float] = {}  # when the last sample was asked for, by device

    def update(self, sample: MemorySample, facts: ProcessFacts, now: float) -> Listing:
        """Tell the dead from the living in a sample.

        Args:
            sample: of one device; each is taken once, in their order.
            facts: about its processes.
            now: seconds on the monotonic clock.
        """
        before, last = self._known.get(sample.device), self._times.get(sample.device, -math.inf)
        living: dict[int, int] = {}
        owners: dict[int, Owner] = {}
        kept: list[Kept] = []
        fresh: dict[int, _Listed] = {}
        for pid, size in (*(sample.held or {}).items(), *sample.ended.items()):
            known, start = (before or {}).get(pid), sample.starts.get(pid, 0)
            if start and (known is None or known.start == start):
                living[pid], owners[pid] = size, facts.owner_of(pid)
                fresh[pid] = _Listed(start, size, _merge(owners[pid], known))
                continue
            # What the first sample of all shows is not of just now.
            since = now if before is not None else -math.inf
            one = known or _Listed(0, size, Owner(is_known=False), since, since=last, until=sample.answered, found=now)
            if start and one.ended == math.inf and not facts.keeps(one.owner.volume or ""):
                one = replace(one, owner=Owner(is_known=False))  # nobody saw that anything was kept
            share, uncertain, one = _divide(pid, size, start, one, facts)
            if share:
                living[pid], owners[pid] = share, facts.owner_of(pid)
            one = fresh[pid] = _follow(pid, replace(one, ended=min(since, one.ended)), facts, now)
            kept.append(one.kept(pid, size - share - uncertain, now))
            if uncertain:
                kept.append(Kept(pid, uncertain, Owner(is_known=False), is_left=True))
        self._known[sample.device], self._times[sample.device] = fresh, min(sample.asked, now)
        return Listing(living, owners, kept)


def _divide(pid: int, size: int, start: int, one: _Listed, facts: ProcessFacts) -> tuple[int, int, _Listed]:
    """Divide what is listed with the pid of a dead process, which another one may have now.

    What came since is that one's, if it has the driver open. But who keeps the memory of the dead one can make more of
    it, too: so a process with a session has no more of it than was leased to it, and what is tolerated. Nor is the rest
    the dead one's for certain: a program with a session could take it past the hook, and would have the container of
    the dead one ended for it. So it is nobody's, unless both are of one container.

    Args:
        pid: of both.
        size: bytes listed.
        start: of the living one; 0 without one.
        one: the dead one.
        facts: about them.

    Returns:
        The bytes of the living one, those which may be either's, and the dead one from now on.
    """
    more = max(size - one.size, 0)
    past = min(one.foreign + (0 if start == one.by else one.beside), more)  # of who had the pid in between
    if not start or not facts.uses(pid):
        past = min(one.foreign + one.beside, more)
        return 0, past, replace(one, size=size - past, foreign=past, beside=0, by=0)
    now, lease = more - past, facts.lease_of(pid)
    share = now if lease is None else min(now, lease + TOLERATED)
    is_same = one.owner.volume == facts.owner_of(pid).volume
    beside = 0 if is_same else now
    one = replace(one, size=min(one.size, size), foreign=past, beside=beside, by=start)
    return share, past + (0 if is_same else now - share), one


def _follow(pid: int, one: _Listed, facts: ProcessFacts, now: float) -> _Listed:
    """Return a dead one with what is known of it now: births are told a little later than samples."""
    if not one.owner.is_known and now - one.found <= _TOLD:
        one = replace(one, owner=facts.origin_of(pid, one.since, one.until), is_left=False)
    is_left = one.is_left or one.owner.volume is None or not facts.runs(one.owner.volume)
    return replace(one, is_left=is_left)


def _merge(owner: Owner, known: _Listed | None) -> Owner:
    """Return whose a process was, if it is that of nobody any more: its container may end just before it does."""
    if known is None:
        return owner
    return Owner(
        owner.volume or known.owner.volume,
        owner.container or known.owner.container,
        owner.has_session or known.owner.has_session,
    )
