"""The scheduler as a pure machine: `handle(event, now) -> Step`. State changes nowhere else.

`transitions` says what each event changes, `allocation` which allocations are answered because of it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from convgpu.core import events as e
from convgpu.core.allocation.admission import is_reserved_taken
from convgpu.core.allocation.allocator import Allocator
from convgpu.core.allocation.headroom import Headroom
from convgpu.core.allocation.wait_reasons import Wait, explain, explain_one
from convgpu.core.errors import InvariantBrokenError
from convgpu.core.events import Event, TakeHeadroom
from convgpu.core.memory.account import Account, AccountView
from convgpu.core.memory.claim_table import MakeClaimTable
from convgpu.core.memory.snapshot import DeviceView, LedgerSnapshot, take_snapshot, view_device
from convgpu.core.placement import Choice, Placement
from convgpu.core.placer import Placer, elastic_beside, propose
from convgpu.core.residency import events as r
from convgpu.core.residency.quantum import SWITCH_COST
from convgpu.core.state import State
from convgpu.core.step import Step, StepBuilder
from convgpu.core.transitions import Transitions
from convgpu.core.turns.moves import Moves
from convgpu.core.turns.room import Room
from convgpu.core.turns.transitions import ResidencyTransitions
from convgpu.core.turns.turns import Turns
from convgpu.core.turns.views import ResidenceView, view_residence
from convgpu.policies.eviction import DEFAULT_EVICTION, EVICTION_POLICIES
from convgpu.policies.memory.base import Policy, WaitingAllocation
from convgpu.policies.placement import DEFAULT_PLACEMENT
from convgpu.protocol.event_kinds import EventKind

# After these no waiting allocation can be answered that could not be before.
_OF_RESIDENCY: Final = frozenset(get_args(r.ResidencyEvent))
_FREES_NOTHING: Final = {e.AllocationRequested, e.MemoryFreed} | (_OF_RESIDENCY - {r.PoolChanged})


class Machine:
    """Ledger, sessions and waiting allocations of one host.

    Args:
        capacity: bytes per device UUID that may be handed out.
        policy: chooses which waiting allocation is served.
        starvation_timeout: seconds after which a waiting allocation is overdue, and newcomers are held back behind it
            (allocation/fairness.py). Together with safety this bounds every wait by the ends of those that hold memory.
        recovering: give no grants until RecoveryEnded, so that processes of an earlier scheduler can reconnect.
        placement: name of the policy that chooses devices.
        eviction: name of the policy that chooses whose memory leaves a device.
        switch_cost: the share of the time that time slices may cost; 0: no running container loses its turn.
    """

    def __init__(
        self,
        capacity: Mapping[str, int],
        policy: Policy,
        starvation_timeout: float = 60.0,
        *,
        recovering: bool = False,
        placement: str = DEFAULT_PLACEMENT,
        eviction: str = DEFAULT_EVICTION,
        switch_cost: float = SWITCH_COST,
    ) -> None:
        self._state = State(capacity, policy, starvation_timeout, recovering=recovering, placement=placement)
        self._ledger = self._state.ledger
        self._step = StepBuilder()
        self._due: TakeHeadroom | None = None  # the question whose answer has to be the next event
        headroom = Headroom(self._state, self._step)
        self._allocator = Allocator(self._state, headroom, self._step)
        self._room = Room(self._state)
        moves = Moves(self._state, self._room, self._step, self._allocator.answer, EVICTION_POLICIES[eviction])
        self._turns = Turns(self._state, self._room, moves, headroom, switch_cost)
        # Bound once: each access to a singledispatchmethod builds its dispatcher anew.
        self._placer = Placer(self._state, self._step)
        self._apply = Transitions(self._state, headroom, self._allocator, self._placer, self._step).apply
        self._apply_residency = ResidencyTransitions(self._state, moves).apply

    def use_tables(self, make_table: MakeClaimTable) -> None:
        """Keep claims in tables of another kind from now on; all kinds give the same answers."""
        for check in self._ledger.scenarios:
            check.use_tables(make_table)

    # -- views -------------------------------------------------------------------------------------------

    @property
    def devices(self) -> frozenset[str]:
        """All devices of this host."""
        return frozenset(self._state.settling)

    @property
    def holders(self) -> tuple[str, ...]:
        """The containers that were granted memory."""
        return tuple(self._ledger.holders)

    def snapshot(self) -> LedgerSnapshot:
        """Return all accounts and devices as they are now.

        Costs as much as there are accounts: for what runs about once a second. What runs for each request reads single
        accounts and devices instead.
        """
        return take_snapshot(self._ledger)

    def device(self, device: str) -> DeviceView:
        """Return the figures of a device as they are now.

        Raises:
            KeyError: it is not a device of this host.
        """
        return view_device(self._ledger, device)

    def runs(self, container: str) -> bool:
        """Say whether a container has a mount or a process; False if it is not known."""
        known = self._state.containers.get(container)
        return known is not None and (known.mounted or known.sessions > 0)

    def account(self, container: str, device: str) -> AccountView | None:
        """Return the account of a container on a device as it is now; None without a limit there."""
        account = self._ledger.accounts.get(container, {}).get(device)
        return None if account is None else account.view()

    def accounts(self, container: str) -> Mapping[str, AccountView]:
        """Return the accounts of a container by device, as they are now; none when it has no limits."""
        accounts = self._ledger.accounts.get(container, {})
        return {device: account.view() for device, account in accounts.items()}

    def charged(self, container: str, device: str) -> int:
        """Return how many bytes of a device a container is charged with beside its leases; 0 without a limit there."""
        account = self._ledger.accounts.get(container, {}).get(device)
        return 0 if account is None else account.charged

    def lease(self, session: int, device: str) -> int:
        """Return how many bytes of a device are leased to a session; 0 when it has none or has ended."""
        container = self._state.sessions.get(session, "")
        account = self._ledger.accounts.get(container, {}).get(device)
        return 0 if account is None else account.leases.get(session, 0)

    def on_host(self, session: int, device: str) -> tuple[int, int]:
        """Return how many bytes of a session lie on the host, and how many of these are on their way back."""
        residence = self._state.residency.containers.get(self._state.sessions.get(session, ""))
        memory = None if residence is None else residence.sessions.get(session)
        return (0, 0) if memory is None else (memory.out.get(device, 0), memory.restoring.get(device, 0))

    @property
    def policy(self) -> Policy:
        """The policy that chooses now."""
        return self._state.policy

    @property
    def placement_policy(self) -> str:
        """The name of the policy that chooses devices now."""
        return self._state.placement_policy.name

    def choice(self, container: str) -> Choice | None:
        """Return what the scheduler is to choose for a container; None when it has certain devices."""
        known = self._state.containers.get(container)
        return None if known is None else known.choice

    def hides_others(self, container: str) -> bool:
        """Say whether programs are shown only the devices that a container has: not if it has all of this host's."""
        if self.choice(container) is not None:
            return True
        limited = self._ledger.accounts.get(container, {})
        return bool(limited) and not limited.keys() >= self.devices

    def placement(self, container: str) -> Placement | None:
        """Return where a container with a choice was placed, and why; None while it is not placed."""
        known = self._state.containers.get(container)
        return None if known is None else known.placement

    def offer(self, container: str) -> Mapping[str, int]:
        """Return the limits of a container with a choice on all devices that it may get."""
        known = self._state.containers.get(container)
        return {} if known is None else dict(known.offer)

    def propose(self, container: str, visible: Sequence[str] = ()) -> Placement:
        """Return where a container with a choice would be placed now if its process saw these devices."""
        return propose(self._state, container, visible)

    @property
    def starvation_timeout(self) -> float:
        """Seconds after which a waiting allocation is overdue."""
        return self._state.starvation_timeout

    @property
    def recovering(self) -> bool:
        """Whether no grants are given yet, because processes of an earlier scheduler may reconnect."""
        return self._state.recovering

    @property
    def drained(self) -> frozenset[str]:
        """The devices on which no grants are given."""
        return frozenset(self._state.drained)

    def reuse(self, device: str) -> int:
        """Return how many containers whose memory may leave can be on a device; 0: any number."""
        return self._state.reuse.get(device, 0)

    def elastic_beside(self, container: str, device: str) -> int:
        """Return how many other containers that run are on a device and may leave it."""
        return elastic_beside(self._state, container, device)

    @property
    def lost(self) -> frozenset[str]:
        """The devices that do not answer."""
        return frozenset(self._state.lost)

    @property
    def waiting(self) -> list[WaitingAllocation]:
        """The allocations without an answer, oldest first."""
        waiting = [pending.view for pending in self._state.queue]
        if not self._state.deferred:
            return waiting
        return sorted(waiting + [pending.view for pending in self._state.deferred], key=lambda w: w.sequence)

    def explain(self, now: float, *, behind: bool = True) -> dict[int, Wait]:
        """Return why each waiting allocation waits, by the number of its request; `behind`: and for whom."""
        return explain(self._state, now, behind=behind) | self._turns.explain()

    def explain_one(self, container: str, request: int, now: float) -> Wait | None:
        """Return why one allocation of a container waits; None if it does not."""
        known = self._state.containers.get(container)
        if known is None:
            return None
        found = explain_one(self._state, container, request, now)
        return found or (self._turns.explain().get(request) if known.deferred else None)

    def settling(self, device: str) -> int:
        """Bytes that ended processes used and the driver may not have freed yet."""
        return self._state.settling_on(device)

    def card(self, device: str) -> tuple[int, int]:
        """Return the bytes of the card itself that are not leased, negative while facts took more, and all leases."""
        return self._room.free(device), self._ledger.leased[device]

    def is_reserved_taken(self, device: str) -> bool:
        """Say whether facts took what containers were granted of a device, or what is reserved for them."""
        return is_reserved_taken(self._state, device)

    def is_leaving(self, container: str) -> bool:
        """Say whether only what its ended processes may have keeps a container on the devices chosen for it."""
        return self._placer.is_leaving(container)

    def may_be_kept(self, device: str) -> Mapping[str, int]:
        """Return by container how many bytes children of its ended processes may keep that it is not charged with."""
        return dict(self._state.may_be_kept[device])

    def may_leave(self, device: str, besides: str) -> bool:
        """Say whether memory of another container than `besides` could leave a device."""
        return self._room.may_leave(device, besides)

    def residence(self, container: str) -> ResidenceView | None:
        """Return where the memory of an elastic container is and what it does; None if it is rigid."""
        return view_residence(self._state, self._room, self._turns.in_the_way, container, self._turns.due(container))

    def may_fix(self, container: str, device: str, size: int) -> bool:
        """Say whether so many bytes of an elastic container may be memory that cannot leave the device.

        It is safe then: beside all that cannot leave, each elastic container still fits on the card (`reservations`).
        """
        return self._allocator.reservations.allow_fixed(container, device, size)

    def fixed_shares(self, container: str) -> Mapping[str, int]:
        """Return by device how much of a container may be memory that cannot leave; none if it is rigid."""
        residence = self._state.residency.containers.get(container)
        return {} if residence is None else dict(residence.fixed)

    def rates(self, device: str) -> tuple[float, float, float]:
        """Return bytes per second out of a device and into it, and the seconds of a drain, as decisions use them."""
        rates = self._state.residency.rates[device]
        return rates.out, rates.into, rates.drain

    def moved(self, device: str) -> tuple[int, int]:
        """Return the bytes that went out of a device and came back, since the scheduler started."""
        moved = self._state.residency.moved
        return moved[EventKind.EVICTED][device], moved[EventKind.RESTORED][device]

    def out(self, device: str) -> int:
        """Bytes of the device's containers that lie on the host, those that the driver's checkpoint took included."""
        return self._state.residency.out[device] + self._state.residency.saved[device]

    def next_deadline(self) -> float | None:
        """Return when TimePassed is due, on the clock of the events; None when it is not.

        Never during recovery: a delay that the scheduler causes rejects no allocation.
        """
        if self.recovering:
            return None
        times = (self._state.queue.next_deadline(), self._state.deferred.next_deadline(), self._turns.next_deadline())
        return min((time for time in times if time is not None), default=None)

    # -- events ------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> Step:
        """Apply an event at `now` (seconds of a monotonic clock) and return what has to be done.

        Raises:
            InvariantBrokenError: the last step needs another event next.
        """
        self._check_answer(event)
        self._state.now = now
        (self._apply_residency if type(event) in _OF_RESIDENCY else self._apply)(event)
        if not self._step.needs_answer and type(event) not in _FREES_NOTHING:
            if self._state.lost and not self._state.recovering:
                self._allocator.reject_displaced(self._placer.leave_lost())
            self._allocator.serve()
        if not self._step.needs_answer and not self._turns.decide():
            self._allocator.record_deferred()
        if not self._step.needs_answer:
            self._report_limits()
        step = self._step.build()
        self._due = step.needs
        return step

    def _check_answer(self, event: Event) -> None:
        """Let nothing but the answer follow a question, and no answer without its question."""
        asked = set(self._due.slots) if self._due else None
        answered = {slot for slot, _ in event.taken} if isinstance(event, e.HeadroomTaken) else None
        if asked != answered:
            raise InvariantBrokenError(f"{event} is not the answer to {self._due}")

    def _report_limits(self) -> None:
        for container, device in self._ledger.changed_limits:
            account = self._ledger.accounts[container][device]
            self._step.add(e.LimitInForce(container, device, account.limit, account.target))
        self._ledger.changed_limits.clear()

    # -- invariants --------------------------------------------------------------------------------------

    def check_invariants(self, now: float) -> None:
        """Check ledger and queue at `now`. Not while a step needs an answer.

        Raises:
            InvariantBrokenError: the ledger is wrong, something of an ended session is left, or a waiting allocation
                could be served or a limit that was asked for be in force (invariant 3).
        """
        self._ledger.check_invariants()
        for name, accounts in self._ledger.accounts.items():
            for device, account in accounts.items():
                self._check_leases(name, device, account)
        if any(pending.event.session not in self._state.sessions for pending in self._state.queue):
            raise InvariantBrokenError("an allocation of an ended session waits")
        doubted = [one for container in self._state.containers.values() for one in container.doubted.values()]
        if any(pending.event.session not in self._state.sessions for pending in doubted):
            raise InvariantBrokenError("an allocation of an ended session is looked at")
        if not self._state.queue.are_of_holders(self._ledger.holders):
            raise InvariantBrokenError("what waits is not ordered by who holds memory")
        self._state.now = now
        changed, targets = dict(self._ledger.changed_containers), list(self._ledger.targets)
        self._ledger.changed_containers |= dict.fromkeys(self._ledger.accounts)  # consider everything anew
        self._ledger.changes.release(self._ledger.capacity)
        if (pending := self._allocator.next()) is not None:
            raise InvariantBrokenError(f"waits and could be served: {pending}")
        if targets != list(self._ledger.targets):
            raise InvariantBrokenError(f"limits could be in force: {targets}, left are {self._ledger.targets}")
        self._turns.check()
        self._allocator.reservations.check()
        self._ledger.changed_containers = changed  # a checked machine decides as one that is not checked

    def _check_leases(self, name: str, device: str, account: Account) -> None:
        others = [session for session in account.leases if self._state.sessions.get(session) != name]
        if others:
            raise InvariantBrokenError(f"leases of sessions that are not {name}'s: {others}")
        slots = [(session, device) for session, size in account.leases.items() if size]
        unarmed = [slot for slot in slots if slot not in self._state.armed]
        if unarmed and self._state.is_scarce:
            raise InvariantBrokenError(f"an allocation waits, and frees are not reported by {unarmed}")
