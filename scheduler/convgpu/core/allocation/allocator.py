"""The allocator: which allocations are accepted, which wait, and which are rejected.

Before an allocation is rejected or has to wait, unused memory is taken back (`reclaim`), and the decision is made on
the exact figures that come back with HeadroomTaken.
"""

from collections.abc import Iterable, Sequence

from convgpu.core import events as e
from convgpu.core.allocation.admission import (
    admit,
    admit_again,
    can_be_admitted,
    complete_unified,
    required,
    reserve_again,
)
from convgpu.core.allocation.backfill import Backfill, Grants
from convgpu.core.allocation.fairness import overtakes_overdue, serving_order
from convgpu.core.allocation.headroom import Headroom
from convgpu.core.allocation.hold_back import hold_back
from convgpu.core.allocation.reclaim import ReclaimLadder
from convgpu.core.allocation.reservations import CardReservations
from convgpu.core.allocation.retries import Retries
from convgpu.core.allocation.terms import deadline_of, wait_end
from convgpu.core.allocation.turns import head_start, last_passed
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.memory.release_sums import ReleaseSums
from convgpu.core.state import Container, State
from convgpu.core.step import StepBuilder
from convgpu.policies.memory.base import WaitingAllocation
from convgpu.protocol.event_kinds import EventKind, RejectReason


class Allocator:
    """Decides from a state, changes it accordingly, and adds what has to be done to the step.

    Args:
        state: of the machine.
        headroom: of all processes.
        step: receives the answers.

    Attributes:
        reservations: of the cards.
    """

    def __init__(self, state: State, headroom: Headroom, step: StepBuilder) -> None:
        self._state = state
        self._ledger = state.ledger
        self._headroom = headroom
        self._ladder = ReclaimLadder(state, headroom)
        self.reservations = CardReservations(state)
        self._release_sums = ReleaseSums(Grants(state.ledger))
        self._retries = Retries(state)
        self._is_reclaiming = False  # the ladder was climbed, and the answer may leave another rung to climb
        self._left = dict(state.ledger.free)  # by device, what was free after reserves were completed last
        state.ledger.allows_raise = self.reservations.allow_raise
        self._step = step

    # -- requests ----------------------------------------------------------------------------------------

    def request(self, event: e.AllocationRequested) -> None:
        """Answer at once what needs no exact figures; for the rest have headroom taken first."""
        name = self._state.sessions[event.session]
        account = self._ledger.accounts[name].get(event.device)
        pending = self._pend(event, name)
        if account is None:
            is_displaced = self._state.containers[name].choice is not None
            self._reject(pending, RejectReason.DISPLACED if is_displaced else RejectReason.DEVICE)
        elif event.size > max(account.limit, account.target or 0):
            self._reject(pending, RejectReason.LIMIT)
        elif not self._is_beside_kept(pending) and (
            event.size <= account.idle or (not self._state.awaits_admission(name) and self._grant_whole_limit(pending))
        ):
            admit_again(self._state, name)
            self._accept(pending)
            if self._state.containers[name].pending:  # on a drained device; one of them may exceed the limit now
                self.serve()
        else:
            self._state.enqueue(pending)
            self._headroom.arm([name])
            if self._is_beside_kept(pending):
                self._headroom.take_from([name])  # no other container has to do with it
            else:
                self._headroom.take_nearest(name, event.device)

    def _is_beside_kept(self, pending: PendingAllocation) -> bool:
        """Return whether it may be above the limit with what is kept of ended processes: headroom is taken before."""
        account, kept = self._state.account(pending), self._state.may_be_kept[pending.device].get(pending.container, 0)
        return kept > 0 and account.held + pending.size + kept > account.limit

    def _pend(self, event: e.AllocationRequested, name: str) -> PendingAllocation:
        container = self._state.containers[name]
        before = self._state.resume(event)
        view = WaitingAllocation(
            sequence=before.sequence if before else self._state.next_arrival(),
            container=name,
            container_order=container.order,
            device=event.device,
            request=event.request,
            size=event.size,
            is_context=event.is_context,
            since=before.view.since if before else self._state.now,
            priority=container.priority,
            head_start=head_start(container.priority, self._state.starvation_timeout),
        )
        deadline = deadline_of(self._state, name, view.since)
        return PendingAllocation(event, view, deadline, is_looked_at=event.is_looked_at)

    # -- serving -----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer all that can be answered; climb the ladder of reclaiming for the rest, until they have to wait."""
        if not (self._retries.are_due or self._is_reclaiming):
            return
        self._is_reclaiming = False
        self._retries.begin()
        self.reservations.keep_promises()
        self._ladder.take_idle_of_overcommitted()
        self._complete_reserves()
        while (pending := self.next()) is not None:
            self._state.dequeue(pending)
            if self._exceeds_limit(pending):
                self._reject_or_doubt(pending)
            else:
                self._grant(pending)
                self._accept(pending)
        is_scarce = self._state.is_scarce
        if is_scarce and self._ladder.climb():
            self._is_reclaiming = True
            return
        if is_scarce:
            self._state.mark_paused()
        self._reject_beyond_limits()
        if not self._state.is_scarce:
            self._headroom.disarm()
        self._record_pauses()

    def next(self) -> PendingAllocation | None:
        """Choose the allocation to answer next: by its own grant or limit where nobody is overtaken, else by order.

        None when all that are left have to wait.
        """
        state, ledger = self._state, self._ledger
        state.set_backfilled_apart()
        if not state.recovering:
            state.apply_targets()
        if not state.queue and not ledger.targets:
            return None
        pending = self._next_without_grant()
        if pending is not None or state.recovering:
            return pending
        self._ladder.take_idle_grants()
        self.reservations.keep_promises()
        if self._was_freed():  # nobody else is granted what of others was idle before, or the pool
            self._complete_reserves()
            if (pending := self._next_without_grant()) is not None:
                return pending
        state.apply_targets()
        devices = self._retries.devices()
        pending = self._next_in_order(devices) if devices else None
        if pending is None:
            self._retries.conclude()
        return pending

    def _complete_reserves(self) -> None:
        """Reserve again what facts took of admitted containers; looks at all, so not for each that is served."""
        if self._state.lacks_reserves and not self._state.recovering:
            reserve_again(self._state)
        complete_unified(self._state)
        self._left = dict(self._ledger.free)

    def _was_freed(self) -> bool:
        """Return whether more is free of a device than what the reserves left, so that they may be completed."""
        return any(self._ledger.free[device] > size for device, size in self._left.items())

    def _next_in_order(self, devices: Sequence[str]) -> PendingAllocation | None:
        """Return the first that can be served of those that wait for memory of these devices."""
        state, held_back = self._state, hold_back(self._state, devices, self._state.now)
        backfill = Backfill(state, held_back, self._release_sums, devices)
        waiting = self._retries.candidates(devices, held_back, backfill.may_pass)
        for chosen in serving_order(state, waiting, state.now):
            passes = backfill.passes(chosen)
            if passes and not backfill.leaves_enough(chosen):
                continue
            is_safe = self._is_safe(chosen) and self.reservations.allow(chosen.container)
            if is_safe and (not passes or backfill.can_all_end_beside(chosen)):
                pending = state.queue[chosen.sequence]
                pending.passes_overdue = passes
                self._retries.choose(held_back, waiting, chosen)
                return pending
        return None

    def _is_safe(self, chosen: WaitingAllocation) -> bool:
        if self._state.awaits_admission(chosen.container):
            return can_be_admitted(self._state, chosen)
        lacking = required(self._state, chosen)[chosen.device]
        return self._ledger.is_safe_to_grant(chosen.container, chosen.device, lacking)

    def _next_without_grant(self) -> PendingAllocation | None:
        """Return an allocation that its container's own idle grant serves, or that has to be rejected."""
        state = self._state
        for name in self._ledger.changed_containers:
            for pending in self._state.containers[name].pending.values():
                if self._exceeds_limit(pending) or self._may_use_idle_grant(pending):
                    return pending
                account = state.account(pending)
                if account.held + pending.size <= account.limit:
                    pending.is_looked_at = False  # what it is charged with later is not
        return None

    def _may_use_idle_grant(self, pending: PendingAllocation) -> bool:
        """Return whether its container's idle grant holds it and can be used out of the serving order.

        Idle grants of a drained device, and all of them during recovery, can be given to nobody else.
        """
        state = self._state
        if pending.size > state.account(pending).idle:
            return False
        if state.containers[pending.container].is_admitted:
            return True
        return state.recovering or pending.device in state.drained or not overtakes_overdue(state, pending.view)

    def _exceeds_limit(self, pending: PendingAllocation) -> bool:
        """Return whether it exceeds the limit, and also a higher one that may come into force."""
        account = self._state.account(pending)
        return account.held + pending.size > max(account.limit, account.target or 0)

    def _grant(self, pending: PendingAllocation) -> None:
        """Grant what its container lacks for it, and if possible the whole limit."""
        passed = last_passed(self._state, pending)
        if self._state.awaits_admission(pending.container):
            admit(self._state, pending, passed)
            return
        container = self._state.containers[pending.container]
        if pending.container not in self._ledger.holders:
            self._ledger.claimants.begin_holding(pending.container, passed)
            container.contexts = 0
        container.contexts += pending.size if pending.event.is_context else 0
        lacking = max(pending.size - self._state.account(pending).idle, 0)
        self._ledger.grant(pending.container, pending.device, lacking)
        self._grant_whole_limit(pending)

    def _grant_whole_limit(self, pending: PendingAllocation) -> bool:
        """Grant ahead when nobody waits and the container could end with what is free, which is always safe."""
        state, name, device = self._state, pending.container, pending.device
        need = self._ledger.need(name, device)
        if state.is_scarce or state.recovering or device in state.drained:
            return False
        if pending.size > state.account(pending).idle + need or not self._ledger.fits_free(name):
            return False
        if not self.reservations.allow(name):
            return False
        self._ledger.grant(name, device, need)
        return True

    # -- rejections --------------------------------------------------------------------------------------

    def _reject_or_doubt(self, pending: PendingAllocation) -> None:
        """Reject what exceeds its limit; if only what the container is charged with is in its way, have it looked at.

        The audit charges what it found, and that may be gone by now.
        """
        account = self._state.account(pending)
        if pending.is_looked_at or not account.charged or account.leased + pending.size > account.limit:
            self._reject(pending, RejectReason.LIMIT)
            return
        self._state.doubt(pending)
        self._step.add(e.LookAt(pending.event.session, pending.event.request))

    def go_on(self, event: e.AllocationLookedAt) -> None:
        """Let one that was looked at wait where it did; it is rejected if what it exceeds its limit with is there."""
        name = self._state.sessions.get(event.session, "")
        doubted = self._state.containers[name].doubted.values() if name else ()
        for pending in [one for one in doubted if one.event.request == event.request]:
            self._state.drop_doubted(pending)
            pending.is_looked_at, pending.deadline = True, deadline_of(self._state, name, pending.view.since)
            self._state.enqueue(pending)
            self._headroom.arm([name])
            self._headroom.take_nearest(name, pending.device)

    def reject_expired(self) -> None:
        """Reject the allocations whose container's `wait` has run out, or whose gang has not come."""
        state = self._state
        for pending in state.queue.expired(state.now):
            end = wait_end(state, pending.container, pending.view.since)
            missing = [name for name in state.missing_members(pending.container) if not state.is_doubted(name)]
            reason = RejectReason.GANG if missing else None
            if end is not None and end <= state.now:
                reason = RejectReason.DEADLINE
            if reason is None:  # its gang is complete and waits for memory; one of it may still end
                state.queue.postpone(pending, deadline_of(state, pending.container, pending.view.since))
                continue
            state.dequeue(pending)
            self._reject(pending, reason)
        for pending in state.deferred.expired(state.now):
            state.drop_deferred(pending)
            self._reject(pending, RejectReason.DEADLINE)

    def reject_displaced(self, left: Iterable[PendingAllocation]) -> None:
        """Reject what waited for a device that was chosen for its container and is lost."""
        for pending in left:
            self._reject(pending, RejectReason.DISPLACED)

    def withdraw(self, container: Container, event: e.AllocationWithdrawn) -> None:
        """Reject one that waits, because its program was interrupted."""
        for waiting, drop in (
            (container.pending, self._state.dequeue),
            (container.deferred, self._state.drop_deferred),
            (container.doubted, self._state.drop_doubted),
        ):
            for pending in list(waiting.values()):
                if (pending.event.session, pending.event.request) == (event.session, event.request):
                    drop(pending)
                    self._reject(pending, RejectReason.INTERRUPTED)

    def _reject_beyond_limits(self) -> None:
        """Reject what would wait for a higher limit: the raise waits for others, who may wait for this container.

        Not on an overcommitted device, where external memory keeps the limit from being raised.
        """
        if self._state.recovering:
            return
        for name, device in list(self._ledger.targets):
            if self._ledger.free[device] < 0:
                continue
            account = self._ledger.accounts[name][device]
            for pending in list(self._state.containers[name].pending.values()):
                if pending.device == device and account.held + pending.size > account.limit:
                    self._state.dequeue(pending)
                    self._reject_or_doubt(pending)

    # -- answers -----------------------------------------------------------------------------------------

    def _accept(self, pending: PendingAllocation) -> None:
        """Lease the bytes and answer. Where memory can leave, the answer waits for room on the card."""
        event = pending.event
        self._ledger.lease(pending.container, pending.device, event.session, event.size)
        if self._state.residency.is_active:
            self._headroom.arm([pending.container])
            # Its gang has come: what is left of its end is the option `wait`.
            pending.deadline = deadline_of(self._state, pending.container, pending.view.since)
            self._state.defer(pending)
        else:
            self.answer(pending)

    def answer(self, pending: PendingAllocation, ahead: int | None = None) -> None:
        """Answer that the bytes are leased. If nobody waits, lease the session's share of the idle grant ahead as well.

        `ahead`: the most to lease ahead; None without a bound.
        """
        event, name, device = pending.event, pending.container, pending.device
        account = self._state.account(pending)
        container = self._state.containers[name]
        share = 0 if self._state.is_scarce or container.pending else account.idle // container.sessions
        share = share if ahead is None else max(min(share, ahead), 0)
        if left := self._state.left_by_ended(name, device) if share else 0:  # which may be on the card beside it
            share = max(min(share, account.limit - account.held - left), 0)
        if share:
            self._headroom.add(event.session, device, share)
        self._headroom.arm([name])
        self._step.add(e.Accept(event.session, event.request, event.size, self._state.settling_on(device)))
        self._record(pending, EventKind.GRANTED if pending.is_paused else EventKind.ACCEPTED)

    def _reject(self, pending: PendingAllocation, reason: RejectReason) -> None:
        self._step.add(e.Reject(pending.event.session, pending.event.request, reason))
        self._record(pending, EventKind.REJECTED, reason)

    def record_deferred(self) -> None:
        """Record that allocations which wait for room on the card are paused."""
        for pending in self._state.unrecorded_deferred:
            if pending.sequence in self._state.deferred and not pending.is_paused:
                self._record(pending, EventKind.PAUSED)
                pending.is_paused = True
        self._state.unrecorded_deferred.clear()

    def _record_pauses(self) -> None:
        for pending in self._state.unrecorded:
            if pending.sequence in self._state.queue and not pending.is_paused:
                self._record(pending, EventKind.PAUSED)
                pending.is_paused = True
        self._state.unrecorded.clear()

    def _record(self, pending: PendingAllocation, kind: EventKind, reason: RejectReason | None = None) -> None:
        event = pending.event
        waited = self._state.now - pending.view.since if pending.is_paused else None
        self._step.add(
            e.HistoryEntry(
                kind, pending.container, event.device, event.size, event.session, event.request, waited, reason
            )
        )
