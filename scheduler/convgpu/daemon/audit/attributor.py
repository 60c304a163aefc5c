"""Attributes samples: joins NVML's counts with leases, sessions and what the kernel says of processes."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from convgpu.core.audit.attribution import (
    Attribution,
    Kept,
    MemorySample,
    Owner,
    attribute,
)
from convgpu.core.audit.listed import ListedProcesses, Listing, ProcessFacts
from convgpu.core.machine import Machine
from convgpu.daemon.audit.container_resolver import ContainerResolver, ProcessIndex
from convgpu.daemon.audit.doubts.claims import Claims
from convgpu.daemon.audit.doubts.driver_users import DriverUsers
from convgpu.daemon.audit.doubts.ended_processes import NOBODY_TELLS, EndedProcesses
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.system.open_files import FileIdentity
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import is_alive, start_time

# Seconds for what takes some milliseconds.
_LEARNING: Final = 0.5
# Bytes by pid and device.
Leases = Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class Unlimited:
    """What a container holds of a device where it has no limit, or a program of the host's of any.

    Attributes:
        name: of its volume; the Engine's id without one.
        id: of the container in whose cgroup its processes run; empty if that does not say it for sure, or if it holds
            no more than the limit that it gets with its first session.
        size: bytes.
        pids: of the processes that hold them.
        pid: of the process, if it is a program of the host's; 0 if not.
    """

    name: str
    id: str
    size: int
    pids: AbstractSet[int]
    pid: int = 0


@dataclass(slots=True)
class _Latest:
    """A sample with what it lists; `claimed`: with what was claimed of what is nobody's."""

    sample: MemorySample
    listing: Listing
    claimed: Listing | None = None


class Attributor:
    """Finds the owners of the memory in a sample. Nothing here awaits: one call sees one state of the ledger.

    Args:
        machine: knows the leases; only read.
        sessions: of all containers.
        resolver: finds the containers of processes.
        control: the driver's control node.
        ended: tell of processes that have ended.
    """

    def __init__(
        self,
        machine: Machine,
        sessions: SessionRegistry,
        resolver: ContainerResolver,
        control: FileIdentity | None = None,
        ended: EndedProcesses = NOBODY_TELLS,
    ) -> None:
        self._machine = machine
        self._sessions = sessions
        self._resolver = resolver
        self._users = DriverUsers(control)
        self._origins = ended.origins
        self._namespaces = ended.namespaces
        self.claims = Claims(ended.unseen, self._runs)
        self._stays, self._stays_of = ended.stays, ended.stays_of
        self._counted = ended.counted
        self._listed = ListedProcesses()
        self._owners: dict[int, tuple[int, Owner]] = {}  # the starts of processes, and whose they are, as last seen
        self._learned: dict[str, MemorySample] = {}  # the last by device that was asked about
        self._latest: dict[str, _Latest] = {}  # by device

    def index(self) -> ProcessIndex:
        """Return the index of processes as of now; for one audit or one refused allocation."""
        return self._resolver.index()

    async def learn(self, samples: Sequence[MemorySample]) -> list[MemorySample]:
        """Return samples with what the driver tells of those who had the same pid, where that is in doubt.

        Learns of the births until now, if samples list who has ended; without that one is known an audit later.
        """
        if self._origins is not None and any(sample.ended for sample in samples):
            with suppress(OSError):  # TimeoutError too; who reads at intervals says what is wrong
                await asyncio.wait_for(in_daemon_thread(self._origins.catch_up), _LEARNING)
        await self._look(samples)
        self.claims.follow(self.index)
        told = list(samples)
        if self._namespaces is not None:
            index = self.index()
            doubts = {one.device: self._listed.doubtful(one, self._facts(one, index)) for one in samples}
            remembered = {one.device: self._listed.remembered(one.device) for one in samples}
            told = await self._namespaces.ask(samples, doubts, remembered)
        self._learned |= {sample.device: sample for sample in told}
        return told

    async def _look(self, samples: Sequence[MemorySample]) -> None:
        """Look at who uses the driver, where it matters: what that takes, nobody waits for."""
        index, starts, volumes = self.index(), dict[int, int](), set[str]()
        for sample in samples:
            replaced = self._listed.replaced(sample)
            volumes |= {volume for volume in replaced.values() if volume is not None}
            starts |= {pid: sample.starts[pid] for pid in replaced}
        living = {pid: start for sample in samples for pid, start in sample.starts.items()}
        self._owners = {pid: owner for pid, owner in self._owners.items() if living.get(pid, owner[0]) == owner[0]}
        await self._users.look(starts, volumes, index)

    def leases(self, pids: AbstractSet[int]) -> dict[tuple[int, str], int]:
        """Return what these processes may have on devices now; of a thousand that are connected few use memory."""
        return {
            (session.pid, uuid): self._lease_on_card(session.number, uuid)
            for session in self._sessions.by_number.values()
            if session.pid in pids
            for uuid in session.rows
        }

    def _lease_on_card(self, session: int, device: str) -> int:
        """Return what a session may have on a device: what is on the host, it may not have there as well."""
        out, returning = self._machine.on_host(session, device)
        return max(self._machine.lease(session, device) - out + returning, 0)

    def attribute(
        self, sample: MemorySample, leases: Leases, index: ProcessIndex, found: Mapping[Owner, int] | None = None
    ) -> Attribution:
        """Attribute a sample; a container on a device where it has no limit is external there.

        `found`: what the dead hold whom searches found; None: as of the last one.
        """
        listing, device = self._tell_apart(sample, index, found), sample.device
        owners = {pid: owner.volume for pid, owner in listing.owners.items()}
        # A process that ended since the sample has no owner any more and is not external: the order matters.
        held = {pid: size for pid, size in listing.held.items() if owners[pid] or is_alive(pid)}
        limited = {pid: name for pid, name in owners.items() if name and self._machine.account(name, device)}
        lease = {pid: leases.get((pid, device), 0) for pid in limited if pid in index.by_pid}
        managed = self._managed(sample, held, listing.kept)
        kept = self._count_once(listing, device)
        return attribute(sample.used, held, lease, limited.get, managed, kept, sample.imported)

    def _count_once(self, listing: Listing, device: str) -> Sequence[Kept]:
        """Return what dead processes have, each with what its container's limit counts of it anyway.

        The connection of one can be open still: it is ending, and other files of it are closed first, or a child has
        it. Who has a dead one's pid now is another process.
        """
        dead = {one.pid for one in listing.kept if one.pid not in listing.held}
        leases = self.leases(dead) if dead else {}
        counted = {pid: leases.get((pid, device), 0) + self._counted(pid, device) for pid in dead}
        return [replace(one, counted=counted.get(one.pid, 0)) for one in listing.kept]

    def _tell_apart(
        self, sample: MemorySample, index: ProcessIndex, found: Mapping[Owner, int] | None = None
    ) -> Listing:
        """Return what a sample lists, by the living and by the dead; the same for each question about it.

        Somebody else may ask about the same sample: what was confirmed for one is nothing for others.
        """
        latest = self._latest.get(sample.device)
        if latest is None or latest.sample is not sample:
            facts, is_learned = self._facts(sample, index), self._learned.get(sample.device) is sample
            listing = self._listed.update(sample, facts, time.monotonic(), stores=is_learned)
            latest = self._latest[sample.device] = _Latest(sample, listing)
        listing = latest.listing
        if found is not None or latest.claimed is None:
            managed = partial(self._managed, sample, listing.held, listing.kept)
            claimed = self.claims.add(sample, listing, managed, found)
            if found is not None:
                return claimed
            latest.claimed = claimed
        return latest.claimed

    def _runs(self, name: str, device: str) -> bool:
        return self._machine.runs(name) and self._machine.account(name, device) is not None

    def _facts(self, sample: MemorySample, index: ProcessIndex) -> ProcessFacts:
        device, starts = sample.device, sample.starts

        owners: dict[int, Owner] = {}  # each is asked for several times, and takes 50 us

        def owner_of(pid: int) -> Owner:
            if pid not in owners:
                owners[pid] = self._owner_of(pid, starts.get(pid, 0), index)
            return owners[pid]

        def origin_of(pid: int, since: float, until: float) -> Owner:
            place = self._origins.place_of(pid, since, until) if self._origins is not None else ()
            container = index.outermost(place)
            return Owner(index.by_id.get(container or ""), container, is_known=container is not None)

        leases: list[Leases] = []  # asked for once, if at all

        def lease_of(pid: int) -> int | None:
            if pid not in index.by_pid or owner_of(pid) in (Owner(), Owner(is_known=False)):
                return None
            if not leases:
                leases.append(self.leases(starts.keys() & index.by_pid.keys()))
            return leases[0].get((pid, device), 0)

        def uses(pid: int) -> bool | None:
            return self._users.uses(pid, starts[pid])

        return ProcessFacts(
            owner_of, origin_of, lease_of, lambda name: self._runs(name, device), uses, self._users.keeps
        )

    def _owner_of(self, pid: int, start: int, index: ProcessIndex) -> Owner:
        """Return whose a process is; not known if it has ended by now: answers can take some seconds."""
        owner = Owner(*index.owner_of(pid), pid in index.by_pid)
        if self._owners.get(pid) != (start, owner):
            if start and start_time(pid) != start:
                return Owner(is_known=False)
            self._owners[pid] = start, owner
        return owner

    def left_behind(self, sample: MemorySample, index: ProcessIndex) -> list[Kept]:
        """Return what containers that have ended still hold of a device, for others keep it."""
        kept = self._tell_apart(sample, index).kept
        return [one for one in kept if one.is_left and not one.is_ending and one.owner != Owner()]

    def left_and_listed(self, sample: MemorySample, index: ProcessIndex) -> Counter[str]:
        """Return what ended processes exported and is listed for them as well, at most, in bytes by container."""
        return self._left_and_listed(sample.device, self._tell_apart(sample, index).kept)

    def _left_and_listed(self, device: str, kept: Sequence[Kept]) -> Counter[str]:
        listed = defaultdict[str, Counter[int]](Counter)
        for one in kept:
            if one.owner.volume is not None:
                listed[one.owner.volume][one.pid] += one.size
        found: Counter[str] = Counter()
        for name, sizes in listed.items():
            sizes[0] = sizes.total()  # of whom that is not known, it may be anybody
            found[name] = sum(min(size, sizes[pid]) for pid, size in self._stays_of(name, device).items())
        return found

    def note_dead(self, sample: MemorySample, index: ProcessIndex) -> None:
        """Note what a look of the audit lists of dead processes."""
        self._tell_apart(sample, index)
        self.claims.note(sample.device, self._latest[sample.device].listing.kept)

    def claimed(self, sample: MemorySample, index: ProcessIndex) -> tuple[Counter[str], Counter[str]]:
        """Return what `Claims.told` does of a sample."""
        return self.claims.told(sample.device, self._tell_apart(sample, index).kept)

    def without_limit(self, sample: MemorySample, index: ProcessIndex) -> list[Unlimited]:
        """Return what containers hold of a device without a limit there, and programs of the host's."""
        listing, device = self._tell_apart(sample, index), sample.device
        pids: dict[tuple[str, str], set[int]] = defaultdict(set)
        found = []
        for pid, owner in listing.owners.items():
            container, name = owner.container, owner.volume
            if name is None and container is None and index.container_of(pid) is not None:
                continue  # who had the pid has ended, and a container's process has it now
            if name is None and container is None and is_alive(pid):
                found.append(Unlimited(f"pid {pid}", f"pid {pid} on {device}", listing.held[pid], {pid}, pid))
            elif name is None and container is not None:
                pids[container, container].add(pid)
            elif name is not None and self._machine.account(name, device) is None:
                pids[name, container if container and index.by_id.get(container) == name else ""].add(pid)
        for (name, container), own in sorted(pids.items()):
            size = sum(listing.held[pid] for pid in own)
            is_sure = not self._is_within_offer(name)
            found.append(Unlimited(name, container if is_sure else "", size, own))
        return found

    def _is_within_offer(self, name: str) -> bool:
        """Say whether all containers of a volume whose devices are not chosen yet hold no more than it will give.

        Those are one device's bytes, or those of as many as are to be chosen. Where nobody asked for a choice, who was
        given some of the host's devices gets all of those; what it was given is not known here.
        """
        choice, offer = self._machine.choice(name), self._machine.offer(name)
        if self._machine.accounts(name) or choice is None:
            return False
        held = {device: _held_by(name, latest.listing) for device, latest in self._latest.items()}
        used = {device for device, size in held.items() if size}
        if any(held[device] > offer.get(device, 0) for device in used):
            return False
        count = len(used) if choice.is_default and used < offer.keys() else choice.count
        return sum(held.values()) <= count * max(offer.values(), default=0)

    def _managed(self, sample: MemorySample, held: Mapping[int, int], kept: Sequence[Kept]) -> int:
        """Return what is used beyond what the driver lists for processes, in bytes, and what ended ones left.

        What of that was imported is among what processes hold (`MemorySample.imported`), and what is listed for those
        ended ones is among that: it would count twice, and hide as much that is nobody's.
        """
        device = sample.device
        used: dict[int, int] = defaultdict(int)
        for session in self._sessions.by_number.values():
            if session.pid in held and device in session.rows:
                used[session.pid] += self._sessions.used_by(session, device)
        told = sum(sample.imported.values()) + self._left_and_listed(device, kept).total()
        left = max(self._stays(device) - told, 0)
        return sum(max(size - held[pid], 0) for pid, size in used.items()) + left

    def used(self, container: str, device: str) -> int:
        """Return what the hooks of a container account for on a device, in bytes."""
        return self._sessions.used(container, device)

    def forgers(self, device: str) -> set[str]:
        """Return the containers that wrote their headroom themselves; they are not given the time to have erred."""
        return self._sessions.forgers(device)

    def are_all_listed(self, device: str, pids: AbstractSet[int]) -> bool:
        """Say whether every process of ours that uses the device is among these pids."""
        return all(
            session.pid in pids
            for session in self._sessions.by_number.values()
            if device in session.rows and self._sessions.used_by(session, device)
        )


def _held_by(name: str, listing: Listing) -> int:
    """Return what the processes of a volume's containers hold of a device, in bytes."""
    return sum(listing.held[pid] for pid, owner in listing.owners.items() if owner.volume == name)
