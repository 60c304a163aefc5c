"""The state from which the machine decides: containers, sessions, settling memory, allocations without an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from convgpu.core import events as e
from convgpu.core.events import SlotKey
from convgpu.core.memory.account import Account
from convgpu.core.memory.ledger import Ledger
from convgpu.core.memory.queue import PendingAllocation, Queue
from convgpu.core.placement import Choice, Placement
from convgpu.core.residency.state import Residency
from convgpu.policies.memory.base import Policy
from convgpu.policies.placement import DEFAULT_PLACEMENT, PLACEMENT_POLICIES, PlacementPolicy

# Seconds within which a process that has reconnected has sent all again that waited; its hook does so at once. What
# comes later is new, though it may be alike: the process may have executed another program.
_RESENT: Final = 10.0


@dataclass(slots=True)
class Container:
    """A container, without its accounts.

    Attributes:
        order: its place in the order in which containers arrived.
        wait: seconds that its allocations may be paused, None without end.
        priority: containers of higher priority are served first.
        is_whole: it is admitted with its whole limits or not at all (allocation/admission.py).
        gang: name of the gang with which it is admitted; empty without one.
        gang_size: how many containers that has at least.
        is_admitted: its whole limits were granted, and are reserved until its last process ends.
        mounted: its volume is mounted.
        has_ended: its volume was unmounted, and not mounted since.
        sessions: how many processes are connected, or live without their connection.
        contexts: bytes that it was granted for contexts since it held nothing.
        choice: what the scheduler is to choose for it, None if it has all devices of its limits.
        offer: of a container with a choice, its limit on each device that it may get, in the order of the host.
        placement: where it is now, None while nothing is chosen, and for a container without a choice.
        pending: its allocations without an answer that no grant holds, by sequence.
        deferred: those that are leased and wait for room on the card, by sequence.
        doubted: those that exceed a limit with what the container is charged with, while it is looked whether that is
            there, by sequence; they are in no queue.
    """

    order: int
    wait: float | None
    priority: int = 0
    is_whole: bool = False
    gang: str = ""
    gang_size: int = 0
    is_admitted: bool = False
    mounted: bool = False
    has_ended: bool = False
    sessions: int = 0
    contexts: int = 0
    pending: dict[int, PendingAllocation] = field(default_factory=dict)
    choice: Choice | None = None
    offer: dict[str, int] = field(default_factory=dict)
    placement: Placement | None = None
    deferred: dict[int, PendingAllocation] = field(default_factory=dict)
    doubted: dict[int, PendingAllocation] = field(default_factory=dict)

    def is_missing(self, *, runs: bool) -> bool:
        """Return whether its gang cannot start without it; `runs`: others of the gang run already."""
        return not self.is_admitted and not self.pending and not (runs and self.has_ended)


class Returned(NamedTuple):
    """Bytes of a device that an ended process of a container used."""

    container: str
    size: int


class State:
    """Everything that decisions are made from.

    Attributes:
        placement_policy: chooses the devices of containers that have a choice.
        now: seconds, on the clock of the events, of the event that is being handled.
        recovered: when recovery ended, on that clock.
        drained: devices on which no new grants are given.
        lost: devices that do not answer.
        reuse: by device, how many containers whose memory may leave can be there; without an entry any number.
        containers: by name.
        gangs: the containers of each gang.
        sessions: container of each session.
        queue: the allocations without an answer that no grant holds.
        arrived: those of them that began to wait since all were last tried in vain (allocation/retries.py).
        lacks_reserves: what was reserved for admitted containers was taken where a device was overcommitted.
        reserved: those of them whose containers are admitted as a whole, and have idle memory that is nobody else's.
        deferred: the allocations that are leased and wait for room on the card.
        residency: where the memory of elastic containers lies.
        unreserved: containers of which it has to be counted anew what they reserve of the card (reservations.py).
        unrecorded, unrecorded_deferred: those of them that the history does not know as paused yet.
        settling: by device and ended session, what the driver may not have freed yet.
        may_be_kept: by device and container, bytes that children of ended processes may keep and the audit may not
            have charged yet.
        armed: slots whose processes report what they free.
        leased_ahead: by device, sessions that were leased more than they asked for and whose headroom was not taken
            since, longest ago first.
        resumable: by reconnected session, allocations of the session that it replaced and has not sent again, and
            until when it may.
    """

    def __init__(
        self,
        capacity: Mapping[str, int],
        policy: Policy,
        starvation_timeout: float,
        *,
        recovering: bool,
        placement: str = DEFAULT_PLACEMENT,
    ) -> None:
        self.ledger = Ledger(capacity)
        self.policy = policy
        self.placement_policy: PlacementPolicy = PLACEMENT_POLICIES[placement]
        self.starvation_timeout = starvation_timeout
        self.recovering = recovering
        self.now = 0.0
        self.recovered = -inf
        self.drained: set[str] = set()
        self.lost: set[str] = set()
        self.reuse: dict[str, int] = {}
        self.containers: dict[str, Container] = {}
        self.gangs: dict[str, dict[str, None]] = {}
        self.sessions: dict[int, str] = {}
        self.queue = Queue(capacity)
        self.arrived: dict[int, PendingAllocation] = {}
        self.deferred = Queue(capacity)
        self.residency = Residency(capacity)
        self.unreserved: dict[str, None] = {}
        self.lacks_reserves = False
        self.reserved: dict[int, PendingAllocation] = {}
        self.unrecorded: list[PendingAllocation] = []
        self.unrecorded_deferred: list[PendingAllocation] = []
        self.settling: dict[str, dict[int, Returned]] = {device: {} for device in capacity}
        self.may_be_kept: dict[str, dict[str, int]] = {device: {} for device in capacity}
        self.armed: dict[SlotKey, None] = {}
        self.leased_ahead: dict[str, dict[int, None]] = {device: {} for device in capacity}
        self.resumable: dict[int, tuple[float, list[PendingAllocation]]] = {}
        self._arrivals = 0
        self.ledger.report_holder = self._follow_holder

    def next_arrival(self) -> int:
        """Return the number of the next container or allocation that arrives."""
        self._arrivals += 1
        return self._arrivals

    def account(self, pending: PendingAllocation) -> Account:
        """Return the account that an allocation is charged to."""
        return self.ledger.accounts[pending.container][pending.device]

    def _follow_holder(self, container: str, holds: bool) -> None:
        """Order what waits of a container that begins or ceases to hold memory."""
        self.unreserved[container] = None
        for pending in self.containers[container].pending.values():
            self.queue.mark_holder(pending, holds=holds)

    def enqueue(self, pending: PendingAllocation) -> None:
        """Let an allocation wait for its answer."""
        pending.limit = self.account(pending).limit
        self.queue.add(pending)
        self.queue.mark_holder(pending, holds=pending.container in self.ledger.holders)
        self.arrived[pending.sequence] = pending
        self.containers[pending.container].pending[pending.sequence] = pending
        if self.containers[pending.container].is_admitted:
            self.reserved[pending.sequence] = pending
        self.unrecorded.append(pending)
        self.ledger.changed_containers[pending.container] = None
        self.residency.changed[pending.container] = None

    def apply_targets(self) -> None:
        """Bring targets into force, and order what waits by the limits that have changed."""
        self.ledger.apply_targets(self.left_by_ended)
        for container, device in self.ledger.changed_limits:
            self.unreserved[container] = None
            limit = self.ledger.accounts[container][device].limit
            for pending in self.containers[container].pending.values():
                if pending.device == device:
                    self.queue.change_limit(pending, limit)

    def dequeue(self, pending: PendingAllocation) -> None:
        """End an allocation's wait."""
        self.queue.remove(pending)
        self.ledger.changes.release((pending.device,))
        self.arrived.pop(pending.sequence, None)
        self.reserved.pop(pending.sequence, None)
        del self.containers[pending.container].pending[pending.sequence]
        self.residency.changed[pending.container] = None

    def defer(self, pending: PendingAllocation) -> None:
        """Let an allocation that is leased wait for room on the card."""
        self.deferred.add(pending)
        self.unrecorded_deferred.append(pending)
        self.containers[pending.container].deferred[pending.sequence] = pending
        self.residency.deferred[pending.device] += pending.size
        self.residency.changed[pending.container] = None

    def undefer(self, pending: PendingAllocation) -> None:
        """End the wait for room on the card; the allocation is leased still."""
        self.deferred.remove(pending)
        del self.containers[pending.container].deferred[pending.sequence]
        self.residency.deferred[pending.device] -= pending.size
        self.residency.changed[pending.container] = None

    def drop_deferred(self, pending: PendingAllocation) -> None:
        """End the wait for room on the card, and with it the lease."""
        self.undefer(pending)
        self.ledger.lease(pending.container, pending.device, pending.event.session, -pending.size)

    def doubt(self, pending: PendingAllocation) -> None:
        """Have one wait, in no queue, while it is looked whether what is in its way is there."""
        self.containers[pending.container].doubted[pending.sequence] = pending

    def is_doubted(self, name: str) -> bool:
        """Return whether something of a container is looked at; False if it is not known."""
        return name in self.containers and bool(self.containers[name].doubted)

    def drop_doubted(self, pending: PendingAllocation) -> None:
        """End that."""
        del self.containers[pending.container].doubted[pending.sequence]

    def drop_pending(self, container: str, session: int) -> list[PendingAllocation]:
        """Drop and return the allocations of a session that can receive no answer any more."""
        dropped = [p for p in self.containers[container].pending.values() if p.event.session == session]
        for pending in dropped:
            self.dequeue(pending)
        deferred = [p for p in self.containers[container].deferred.values() if p.event.session == session]
        for pending in deferred:
            self.drop_deferred(pending)
        doubted = [p for p in self.containers[container].doubted.values() if p.event.session == session]
        for pending in doubted:
            self.drop_doubted(pending)
        return dropped + deferred + doubted

    def move_pending(self, container: str, replaced: int, session: int) -> None:
        """Keep the age of a replaced session's allocations for its successor, which sends them again."""
        _, unclaimed = self.resumable.pop(replaced, (0.0, []))
        unclaimed += self.drop_pending(container, replaced)
        if unclaimed:
            self.resumable[session] = self.now + _RESENT, unclaimed

    def resume(self, event: e.AllocationRequested) -> PendingAllocation | None:
        """Return the allocation that waited under an earlier connection and is sent again by this request."""
        until, unclaimed = self.resumable.get(event.session, (0.0, []))
        if self.now > until:
            self.resumable.pop(event.session, None)
            return None
        for place, pending in enumerate(unclaimed):
            if (pending.device, pending.size) == (event.device, event.size):
                return unclaimed.pop(place)
        return None

    def set_backfilled_apart(self) -> None:
        """Set the limits of backfilled containers apart while anything waits that they went past."""
        claimants = self.ledger.claimants
        if claimants.has_backfilled and claimants.set_apart(self.queue.first_turn):
            self.ledger.changes.releases += 1

    def mark_paused(self) -> None:
        """Begin the high-water marks of what waits: all leases were reduced to what is in use."""
        self.ledger.newest_waiting = self._arrivals

    def awaits_admission(self, name: str) -> bool:
        """Return whether a container still has to be admitted as a whole."""
        container = self.containers[name]
        return container.is_whole and not container.is_admitted

    def missing_members(self, name: str) -> list[str]:
        """Return the containers of a gang that have to allocate before it is admitted; unknown ones as `?`.

        Those that have ended do not come again, unless none of the gang runs: then it starts anew, as a whole.
        """
        gang = self.containers[name].gang
        if not gang or not self.awaits_admission(name):
            return []
        members = {member: self.containers[member] for member in self.gangs[gang]}
        runs = any(container.is_admitted for container in members.values())
        missing = [member for member, container in members.items() if container.is_missing(runs=runs)]
        return missing + ["?"] * (max(container.gang_size for container in members.values()) - len(members))

    def card(self, device: str) -> int:
        """Return the bytes of a device itself that can be granted: beside them are the pool, and what is unified."""
        return self.ledger.usable[device] - self.ledger.pool[device] - self.ledger.beyond[device]

    def settling_on(self, device: str) -> int:
        """Return the bytes of a device that ended processes used and the driver may not have freed yet."""
        return sum(one.size for one in self.settling[device].values())

    def left_by_ended(self, container: str, device: str) -> int:
        """Return the most that ended processes of a container may still have of a device, in bytes.

        What may be kept counts twice while it settles.
        """
        settling = sum(one.size for one in self.settling[device].values() if one.container == container)
        return settling + self.may_be_kept[device].get(container, 0)

    def forget_slot(self, session: int, device: str) -> None:
        """Forget a slot whose page is gone."""
        self.armed.pop((session, device), None)
        self.leased_ahead[device].pop(session, None)

    def is_needed(self, device: str) -> bool:
        """Return whether an allocation waits for memory of the device and could be given it."""
        if device in self.drained:
            return False
        if not self.gangs:
            return self.queue.has_any_on(device)
        return any(not self.missing_members(pending.container) for pending in self.queue.on(device))

    @property
    def is_scarce(self) -> bool:
        """Whether an allocation, a higher limit or a turn waits for freed memory. Then no grant is left idle."""
        if self.residency.is_tight or self.ledger.has_waiting_raise:
            return True
        return bool(self.queue) and any(self.is_needed(device) for device in self.settling)
