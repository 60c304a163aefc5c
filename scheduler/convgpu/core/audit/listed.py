"""Whose the processes are that NVML lists: the living are told from the dead, whose ID others may have by now; pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from convgpu.core.audit.attribution import NOISE, TOLERATED, Kept, MemorySample, Owner, Told

# Seconds that the driver may take to free what an ended process held (0.3 were seen for 100 GiB).
_FREED: Final = 1.0
# Seconds after which it is known whose child a process was.
_TOLD: Final = 5.0
# Others that had a dead one's pid, of more nobody remembers what they have: first of those that have nothing.
_MOST_CLAIMS: Final = 64


@dataclass(frozen=True, slots=True)
class Listing:
    """What NVML lists of one device, with the dead told from the living.

    Attributes:
        held: bytes by the pid of each living process.
        owners: of those.
        kept: memory of those that have ended.
    """

    held: dict[int, int]
    owners: dict[int, Owner]
    kept: list[Kept]


@dataclass(frozen=True, slots=True)
class _Claim:
    """A process that has the pid of a dead one, or had it; it may have ended, too.

    Attributes:
        start: in clock ticks since boot.
        owner: whose it is.
        size: bytes that came while it had the pid, or what it has if that was told.
    """

    start: int
    owner: Owner
    size: int = 0


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
        claims: who had its pid since, in their order, and what of the rest may be theirs.
        unclaimed: bytes that are nobody's, and not of those: they are not theirs later, either.
    """

    start: int
    size: int
    owner: Owner
    ended: float = math.inf
    is_left: bool = False
    since: float = -math.inf
    until: float = -math.inf
    found: float = -math.inf
    claims: tuple[_Claim, ...] = ()
    unclaimed: int = 0

    def kept(self, pid: int, size: int, now: float, *, is_exiting: bool) -> Kept:
        """Return what it still has, once it has ended."""
        is_ending = now - self.ended < _FREED
        return Kept(pid, size, self.owner, self.is_left, is_ending, is_exiting and is_ending)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What is asked about the processes of one sample.

    Attributes:
        owner_of: says whose a living process is.
        origin_of: says of an ended process whose it was that nobody saw alive, by its pid and two moments: its memory
            was not there yet, and it was there; not known if that cannot be told.
        lease_of: says what a process with a session may have on the device; None without one.
        runs: says of a volume whether its container runs.
        uses: says of a living process whether it has the driver open, as far as can be told: who has not, holds
            nothing, though its pid is listed. Who keeps the memory of a dead one might make more of it. None: there
            was no time to look.
        keeps: says of a volume whether a process of its container has the driver open, and so may keep memory.
    """

    owner_of: Callable[[int], Owner]
    origin_of: Callable[[int, float, float], Owner]
    lease_of: Callable[[int], int | None]
    runs: Callable[[str], bool]
    uses: Callable[[int], bool | None]
    keeps: Callable[[str], bool]


class ListedProcesses:
    """Remembers whose the processes are that NVML lists, for as long as it lists them without a gap.

    NVML lists an ended process while anybody has a copy of its descriptor of the driver. Its pid can be taken meanwhile
    by another process, which starts later: that is nobody who held the memory.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[int, _Listed]] = {}
        self._times: dict[str, float] = {}  # when the last sample was asked for, by device

    def update(self, sample: MemorySample, facts: ProcessFacts, now: float, *, stores: bool = True) -> Listing:
        """Tell the dead from the living in a sample.

        Args:
            sample: of one device; each is taken once, in their order.
            facts: about its processes.
            now: seconds on the monotonic clock.
            stores: what it shows is remembered. What nobody was asked about, would be remembered as a guess.
        """
        before, last = self._known.get(sample.device), self._times.get(sample.device, -math.inf)
        found, fresh = Listing({}, {}, []), dict[int, _Listed]()
        # What the first sample of all shows is not of just now.
        since = now if before is not None else -math.inf
        new = _Listed(0, 0, Owner(is_known=False), since, since=last, until=sample.answered, found=now)
        for pid in {**sample.ended, **(sample.held or {})}:
            known, start = (before or {}).get(pid), sample.starts.get(pid, 0)
            if start and (known is None or known.start == start) and not _has_others(sample, pid, start):
                owner, size = facts.owner_of(pid), (sample.held or {})[pid]
                merged = _merge(owner, known.owner if known is not None else owner)
                # Who ended before its container could be looked at is as one that nobody saw alive.
                one = _Listed(start, size, merged) if merged.is_known else replace(new, owner=merged, ended=math.inf)
                fresh[pid] = replace(one, start=start, size=size)
                found.held[pid], found.owners[pid] = size, owner if owner.container is None else merged
                continue
            # Who lives may have one behind it that nobody saw; births would name who lives.
            behind = replace(new, found=-math.inf) if start else new
            one = known if known is not None and (not start or known.start != start) else behind
            if start and one.ended == math.inf and not facts.keeps(one.owner.volume or ""):
                one = replace(one, owner=Owner(is_known=False))  # nobody saw that anything was kept
            one = _follow(pid, replace(one, ended=min(since, one.ended)), facts, now)
            fresh[pid] = _add(found, sample, pid, one, facts, now)
        if stores:
            self._known[sample.device], self._times[sample.device] = fresh, min(sample.asked, now)
        return found

    def replaced(self, sample: MemorySample) -> dict[int, str | None]:
        """Return the pids of living processes that dead ones had, and whose volume it was that lived before.

        None: that one was known to be dead, or no container's.
        """
        known = self._known.get(sample.device, {})
        pairs = {pid: known[pid] for pid, start in sample.starts.items() if pid in known and known[pid].start != start}
        return {pid: one.owner.volume if one.ended == math.inf else None for pid, one in pairs.items()}

    def remembered(self, device: str) -> set[tuple[int, int]]:
        """Return the pids and starts of the dead whose memory is kept, and of all who had their pids since."""
        known = self._known.get(device, {})
        starts = {pid: [one.start, *(claim.start for claim in one.claims)] for pid, one in known.items()}
        return {(pid, start) for pid, each in starts.items() for start in each if start}

    def doubtful(self, sample: MemorySample, facts: ProcessFacts) -> dict[int, dict[int, bool]]:
        """Return the pids with which memory of several processes may be listed, with the starts of those to ask about.

        A process that holds more than it may have is asked about before anybody is charged with that, and so is one
        without a session: a dead one that nobody saw may have left it, or had nothing when it ended, and who keeps its
        descriptor makes more. Likewise a dead one of which more is listed than it had: another one may have come and
        gone. Where no container's process is among them, it is no matter whose it is.

        Returns:
            by pid and start, whether it is a container's.
        """
        known, found = self._known.get(sample.device, {}), dict[int, dict[int, bool]]()
        for pid in {**sample.ended, **(sample.held or {})}:
            one, start = known.get(pid), sample.starts.get(pid, 0)
            if one is not None and one.start != start:
                owner = facts.owner_of(pid) if start else one.owner
                grows = not start and bool(one.start) and sample.listed_with(pid) > one.size + NOISE
                if grows or one.claims or one.owner.volume is None or one.owner.volume != owner.volume:
                    owners = {one.start: one.owner} | {claim.start: claim.owner for claim in one.claims}
                    owners |= {start: owner} if start else {}
                    rows = {each: (who.volume, who.container) != (None, None) for each, who in owners.items()}
                    found |= {pid: rows} if any(rows.values()) else {}
            elif start and _is_doubtful(pid, sample.listed_with(pid), facts):
                found[pid] = {start: True}
        return found


def _add(found: Listing, sample: MemorySample, pid: int, one: _Listed, facts: ProcessFacts, now: float) -> _Listed:
    """Add what is listed with the pid of a dead process, and return that from now on."""
    start, held = sample.starts.get(pid, 0), (sample.held or {}).get(pid, 0)
    division = _divide(pid, sample.listed_with(pid), start, one, facts, sample.told.get(pid, Told({})))
    # What is not listed is of who lives: it was found in its address space.
    found_there = held - sample.listed.get(pid, 0) if sample.listed is not None else 0
    if living := division.shares.get(start, 0) + found_there:
        found.held[pid], found.owners[pid] = living, facts.owner_of(pid)
    if division.dead or not division.claims:
        found.kept.append(one.kept(pid, division.dead, now, is_exiting=pid in sample.exiting))
    for claim in division.claims:
        if claim.start != start and (share := division.shares.get(claim.start)):
            found.kept.append(Kept(pid, share, claim.owner, is_left=_is_left(claim.owner, facts)))
    if division.nobodys:
        found.kept.append(Kept(pid, division.nobodys, Owner(is_known=False), is_left=True))
    return replace(one, size=division.had, claims=division.claims, unclaimed=division.unclaimed)


def _is_doubtful(pid: int, size: int, facts: ProcessFacts) -> bool:
    if (lease := facts.lease_of(pid)) is not None:
        return size > lease + TOLERATED
    owner = facts.owner_of(pid)
    return size > NOISE and (owner.volume, owner.container) != (None, None)


def _has_others(sample: MemorySample, pid: int, start: int) -> bool:
    """Say whether not all that is listed with the pid of a living process is its own."""
    told = sample.told.get(pid)
    return told is not None and start in told.own and told.others > NOISE


@dataclass(frozen=True, slots=True)
class _Division:
    """What is listed with one pid, by whom it is of, in bytes.

    Attributes:
        dead: of the dead one.
        had: what that one may still have, at most.
        nobodys: what may be several ones'.
        unclaimed: of that, what none of the claims may have.
        claims: who else has the pid or had it, with what may be theirs.
        shares: what those have, by their starts.
    """

    dead: int
    had: int
    nobodys: int
    unclaimed: int
    claims: tuple[_Claim, ...]
    shares: Mapping[int, int]


def _divide(pid: int, size: int, start: int, one: _Listed, facts: ProcessFacts, told: Told) -> _Division:
    """Divide what is listed with the pid of a dead process, which others had since or have.

    What is told is certain, and what nobody was told of is the dead one's, if all others were asked and it had as much.

    Args:
        pid: of all of them.
        size: bytes listed.
        start: of the living one; 0 without one.
        one: the dead one.
        facts: about them.
        told: what is known of them.
    """
    claims = {claim.start: claim for claim in one.claims}
    if start:
        before = claims.get(start, _Claim(start, facts.owner_of(pid)))
        claims[start] = replace(before, owner=_merge(facts.owner_of(pid), before.owner))
    own = _figures(pid, size, start, one, facts, told)
    first = own.get(one.start) if one.start else None
    untold = tuple(claim for claim in claims.values() if claim.start not in own)
    dead = min(size, first or 0)
    if first is None and not untold:
        # Nobody was told of the dead one alone. What was not there before may be of one that came and went unseen.
        others = max(size - sum(own.values()), 0) if told.unasked else told.others
        dead = min(others, size, one.size) if claims or told.unasked else size
    shares, rest = dict[int, int](), size - dead
    for each in sorted(claims.keys() & own.keys()):
        shares[each] = min(own[each], rest)
        claims[each] = replace(claims[each], size=shares[each])
        rest -= shares[each]
    had = min(one.size, dead + rest) if first is None and claims else dead
    unclaimed = min(one.unclaimed, rest) if told.unasked else rest
    if untold:
        guess = _guess(pid, dead + rest, 0 if start in shares else start, replace(one, claims=untold), facts, told)
        claims |= {claim.start: claim for claim in guess.claims}
        shares |= guess.shares
        dead, had, rest, unclaimed = guess.dead, guess.had, guess.nobodys, guess.unclaimed
    latest = sorted(claims.values(), key=lambda claim: (claim.size > 0, claim.start))[-_MOST_CLAIMS:]
    ordered = sorted(latest, key=lambda claim: claim.start)
    return _Division(dead, had, rest, unclaimed, tuple(ordered), shares)


def _figures(pid: int, size: int, start: int, one: _Listed, facts: ProcessFacts, told: Told) -> Mapping[int, int]:
    """Return what each has, by its start, as far as that is told or was told before; see `_divide` for the arguments.

    Who could be asked and was not, has what was told of it last, or what it leased. Nothing is guessed of it: what came
    could be a dead one's, who waited for that moment.
    """
    own = dict(told.own)
    for each, last in told.unasked.items():
        if each != one.start:
            own[each] = last or 0
        elif last is not None:
            own[each] = last
    if start in told.unasked and (lease := facts.lease_of(pid)) is not None:
        more = max(size - own.get(one.start, one.size), 0)
        own[start] = max(own[start], min(more, lease + TOLERATED))
    return own


def _guess(pid: int, size: int, start: int, one: _Listed, facts: ProcessFacts, told: Told) -> _Division:
    """Divide, where nobody was told of who had the pid since (drivers before 565; see `_divide`).

    What came since is of who has it now, if that one has the driver open. But who keeps the memory of the dead one can
    make more of it, too: so a process with a session has no more of it than was leased to it, and what is tolerated.
    Nor is the rest the dead one's for certain: a program with a session could take it past the hook, and would have the
    container of the dead one ended for it. So it is nobody's, unless both are of one container. Where whoever asked was
    ended, all that came while a process had the pid is its own.
    """
    first = told.own.get(one.start) if one.start else None
    base = min(one.size if first is None else first, size)
    uses = facts.uses(pid) if start else False
    lives = uses is True
    *gone, living = one.claims if lives else (*one.claims, _Claim(0, Owner()))
    claims = _shrink(gone, size - base)
    shares = {claim.start: claim.size for claim in claims if claim.start in told.disturbed}
    more = size - base - sum(claim.size for claim in claims)
    unclaimed = min(one.unclaimed, more)
    more -= unclaimed
    past = sum(claim.size for claim in claims) - sum(shares.values()) + unclaimed
    if uses is None:
        return _Division(base, base, past + more, unclaimed, claims, shares)
    if not lives:
        # Who keeps the memory of the dead one can make more of it; but so can who keeps that of others with its pid.
        if first is not None or any(claim.size for claim in one.claims):
            return _Division(base, base, past + more, unclaimed + more, claims, shares)
        return _Division(base + more, base + more, past, unclaimed, claims, shares)
    lease = None if start in told.disturbed else facts.lease_of(pid)
    share = shares[start] = more if lease is None else min(more, lease + TOLERATED)
    if one.owner.volume == facts.owner_of(pid).volume:
        dead = base + more - share
        return _Division(dead, dead, past, unclaimed, (*claims, replace(living, size=0)), shares)
    return _Division(base, base, past + more - share, unclaimed, (*claims, replace(living, size=more)), shares)


def _shrink(claims: Sequence[_Claim], most: int) -> tuple[_Claim, ...]:
    """Return claims that together are of no more than that, the first ones first."""
    shrunk = []
    for claim in claims:
        shrunk.append(replace(claim, size=min(claim.size, most)))
        most -= shrunk[-1].size
    return tuple(shrunk)


def _follow(pid: int, one: _Listed, facts: ProcessFacts, now: float) -> _Listed:
    """Return a dead one with what is known of it now: births are told a little later than samples."""
    if not one.owner.is_known and now - one.found <= _TOLD:
        one = replace(one, owner=facts.origin_of(pid, one.since, one.until), is_left=False)
    return replace(one, is_left=one.is_left or _is_left(one.owner, facts))


def _is_left(owner: Owner, facts: ProcessFacts) -> bool:
    return owner.volume is None or not facts.runs(owner.volume)


def _merge(owner: Owner, known: Owner) -> Owner:
    """Return whose a process was, if it is that of nobody any more, as its container may end just before it does.

    It is never that of another container: then somebody else has its pid by now.
    """
    if known.container is not None and owner.container not in (None, known.container):
        return known
    return Owner(
        owner.volume or known.volume,
        owner.container or known.container,
        owner.has_session or known.has_session,
        owner.is_known or known.is_known,
    )
