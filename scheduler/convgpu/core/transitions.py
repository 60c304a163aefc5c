"""What each event changes. Which allocations are answered because of it, the allocator decides afterwards."""

from functools import singledispatchmethod

from convgpu.core import events as e
from convgpu.core.allocation.admission import end_admission, reserve_again, return_admitted
from convgpu.core.allocation.allocator import Allocator
from convgpu.core.allocation.headroom import Headroom
from convgpu.core.allocation.terms import change_terms, end_recovery
from convgpu.core.events import Event
from convgpu.core.placement import Obstacle, PlacementPolicyChosen, PlacementRequested, ReuseBounded
from convgpu.core.placer import Placer
from convgpu.core.state import Container, Returned, State
from convgpu.core.step import StepBuilder
from convgpu.policies.memory import make_policy
from convgpu.policies.placement import PLACEMENT_POLICIES
from convgpu.protocol.event_kinds import EventKind


class Transitions:
    """One method for each event; `apply` calls the one whose parameter has the event's type."""

    def __init__(
        self, state: State, headroom: Headroom, allocator: Allocator, placer: Placer, step: StepBuilder
    ) -> None:
        self._state = state
        self._ledger = state.ledger
        self._headroom = headroom
        self._allocator = allocator
        self._placer = placer
        self._step = step

    @singledispatchmethod
    def apply(self, event: Event) -> None:
        """Change the state as the event says, and have headroom taken where that decides what follows.

        Raises:
            TypeError: no method is registered for the type of the event.
        """
        raise TypeError(f"not an event: {event!r}")

    # -- containers --------------------------------------------------------------------------------------

    @apply.register
    def _create_container(self, event: e.ContainerCreated) -> None:
        container = Container(
            self._state.next_arrival(),
            event.wait,
            event.priority,
            is_whole=event.is_whole,
            gang=event.gang,
            gang_size=event.gang_size,
            choice=event.choice,
        )
        self._state.containers[event.container] = container
        if event.gang:
            self._state.gangs.setdefault(event.gang, {})[event.container] = None
        self._placer.open(event.container, event.limits, event.placed)

    @apply.register
    def _set_limits(self, event: e.LimitsSet) -> None:
        self._placer.open(event.container, event.limits, None)

    @apply.register
    def _start_container(self, event: e.ContainerStarted) -> None:
        container = self._state.containers[event.container]
        if not container.mounted:
            container.order = self._state.next_arrival()  # its volume may be older than others, or used before
        container.mounted, container.has_ended = True, False

    @apply.register
    def _end_container(self, event: e.ContainerEnded) -> None:
        container = self._state.containers[event.container]
        container.mounted, container.has_ended = False, True
        if not container.is_admitted:
            self._take_idle(event.container)
        self._placer.free(event.container)

    @apply.register
    def _remove_container(self, event: e.ContainerRemoved) -> None:
        self._ledger.close(event.container)
        gang = self._state.containers.pop(event.container).gang
        if gang:
            del self._state.gangs[gang][event.container]
            if not self._state.gangs[gang]:
                del self._state.gangs[gang]
        self._state.residency.remove(event.container)
        for kept in self._state.may_be_kept.values():
            kept.pop(event.container, None)

    def _take_idle(self, container: str) -> None:
        for device in self._ledger.accounts[container]:
            self._ledger.take_idle(container, device)

    # -- sessions ----------------------------------------------------------------------------------------

    @apply.register
    def _start_session(self, event: e.SessionStarted) -> None:
        """Open a session. What it holds already is a fact: granted even if nothing is free, up to its limit."""
        self._state.sessions[event.session] = event.container
        container = self._state.containers[event.container]
        if not container.mounted and not container.sessions:
            container.order = self._state.next_arrival()
        container.sessions += 1
        for device in self._ledger.accounts[event.container]:
            self._ledger.adopt(event.container, device, event.session, event.held.get(device, 0))
        self._state.residency.open_session(event.container, event.session)
        if any(event.held.values()):
            return_admitted(self._state, event.container)
        self._headroom.arm([event.container])
        self._take_headroom_if_overcommitted()

    @apply.register
    def _reconnect_session(self, event: e.SessionReconnected) -> None:
        """Move the leases to the new session; what the process does not use of them is idle, or charged from now on.

        The process sends its requests again: those of the replaced session are dropped, and keep their age for that.
        """
        name = self._state.sessions.pop(event.replaced)
        self._state.sessions[event.session] = name
        self._state.move_pending(name, event.replaced, event.session)
        self._state.residency.move_session(name, event.replaced, event.session)
        for device in self._ledger.accounts[name]:
            self._state.forget_slot(event.replaced, device)
            held = event.held.get(device, 0)
            lease = self._ledger.move_lease(name, device, event.replaced, event.session, held)
            if kept := min(event.kept.get(device, 0), self._ledger.accounts[name][device].idle):
                self._ledger.grant(name, device, -kept)
                self._ledger.charge(name, device, self._ledger.accounts[name][device].charged + kept)
            if event.late:
                self._ledger.adopt(name, device, event.session, held - lease)
        if event.late and any(event.held.values()):
            return_admitted(self._state, name)
        self._headroom.arm([name])
        if event.late:
            self._take_headroom_if_overcommitted()

    @apply.register
    def _end_session(self, event: e.SessionEnded) -> None:
        """Return the whole lease (invariant 4); the part that was used is settling, or charged from now on."""
        name = self._state.sessions.pop(event.session)
        container = self._state.containers[name]
        container.sessions -= 1
        self._state.drop_pending(name, event.session)
        self._state.resumable.pop(event.session, None)
        out = self._state.residency.close_session(name, event.session)
        for device in self._ledger.accounts[name]:
            self._state.forget_slot(event.session, device)
            lease = self._ledger.end_lease(name, device, event.session)
            lease = max(lease - out.get(device, 0), 0)  # what was out takes no room in the driver
            used = lease - min(event.headroom.get(device, 0), lease)
            if kept := min(event.kept.get(device, 0), used):
                self._ledger.charge(name, device, self._ledger.accounts[name][device].charged + kept)
            if used:
                self._state.settling[device][event.session] = Returned(name, used)
                self._step.add(e.HistoryEntry(EventKind.RETURNED, name, device, used, event.session))
        if container.is_admitted and not container.sessions:
            end_admission(self._state, name)
        if not container.sessions and not self._keeps_idle(name):
            self._take_idle(name)
        self._placer.free(name)

    def _keeps_idle(self, name: str) -> bool:
        """Return whether the next process of a container may use what the last one was granted.

        That of who is admitted as a whole is admitted anew; but on a drained device nobody is, and what was granted
        can be used.
        """
        container = self._state.containers[name]
        is_drained = not self._state.drained.isdisjoint(self._ledger.accounts[name])
        return container.mounted and (is_drained or not container.is_whole)

    @apply.register
    def _end_settling(self, event: e.SettlingEnded) -> None:
        for settling in self._state.settling.values():
            if (returned := settling.pop(event.session, None)) is not None:
                self._follow_left(returned.container)

    @apply.register
    def _keep(self, event: e.MayBeKept) -> None:
        kept = self._state.may_be_kept[event.device]
        if event.size and event.container in self._state.containers:
            kept[event.container] = event.size
        elif kept.pop(event.container, None) is not None:
            self._follow_left(event.container)

    def _follow_left(self, name: str) -> None:
        """Let a container leave its place if its ended processes have nothing there any more."""
        if name in self._state.containers:
            self._placer.free(name)

    # -- allocations -------------------------------------------------------------------------------------

    @apply.register
    def _withdraw_allocation(self, event: e.AllocationWithdrawn) -> None:
        container = self._state.containers.get(self._state.sessions.get(event.session, ""))
        if container is not None:
            self._allocator.withdraw(container, event)

    @apply.register
    def _return_allocation(self, event: e.AllocationReturned) -> None:
        if event.session in self._state.sessions:
            self._headroom.make_idle((event.session, event.device), event.size)

    @apply.register
    def _request_allocation(self, event: e.AllocationRequested) -> None:
        self._allocator.request(event)

    @apply.register
    def _go_on_with_allocation(self, event: e.AllocationLookedAt) -> None:
        self._allocator.go_on(event)

    @apply.register
    def _free_memory(self, event: e.MemoryFreed) -> None:
        self._headroom.take_freed(event)

    @apply.register
    def _record_headroom(self, event: e.HeadroomTaken) -> None:
        self._headroom.record_taken(event)

    @apply.register
    def _pass_time(self, _event: e.TimePassed) -> None:
        if not self._state.recovering:
            self._allocator.reject_expired()

    # -- limits and devices ------------------------------------------------------------------------------

    @apply.register
    def _change_limits(self, event: e.LimitsChanged) -> None:
        if self._state.containers[event.container].choice is not None:
            self._placer.change_limits(event.container, event.limits)
        accounts = self._ledger.accounts[event.container]
        for device, limit in event.limits.items():
            if device in accounts:
                self._ledger.ask_limit(event.container, device, limit)
        self._headroom.arm([event.container])
        if not self._state.recovering:
            self._take_headroom_if_targets()

    @apply.register
    def _learn_limits(self, event: e.LimitsLearned) -> None:
        accounts = self._ledger.accounts[event.container]
        for device, account in accounts.items():
            account.learned = event.limits.get(device)
        self._ledger.changed_containers[event.container] = None  # what of its grants is idle may go to others now
        self._ledger.changes.release(accounts)
        self._headroom.arm([event.container])

    @apply.register
    def _change_terms(self, event: e.TermsChanged) -> None:
        change_terms(self._state, event)

    @apply.register
    def _charge_unleased_memory(self, event: e.UnleasedMemory) -> None:
        account = self._ledger.accounts[event.container].get(event.device)
        if account is None:  # the container was placed elsewhere since the audit
            return
        is_growing = event.size > account.charged
        self._ledger.charge(event.container, event.device, event.size)
        if is_growing and not self._take_headroom_if_overcommitted():
            self._headroom.take_from([event.container])
        elif not event.size:
            self._placer.free(event.container)

    @apply.register
    def _change_capacity(self, event: e.CapacityChanged) -> None:
        self._ledger.change_capacity(event.device, event.capacity, event.nominal)
        if event.is_lost != (event.device in self._state.lost):
            (self._state.lost.add if event.is_lost else self._state.lost.discard)(event.device)
            if event.is_lost:
                self._placer.report(event.device, Obstacle.LOST)
        self._take_headroom_if_overcommitted()

    @apply.register
    def _drain_device(self, event: e.DeviceDrained) -> None:
        if event.drained and event.device not in self._state.drained:
            self._placer.report(event.device, Obstacle.DRAINED)
        (self._state.drained.add if event.drained else self._state.drained.discard)(event.device)
        self._ledger.changes.release((event.device,))
        # Idle grants of a device that is not drained any more may be taken back again, whoever holds them.
        self._ledger.changed_containers |= dict.fromkeys(self._ledger.holders)
        for name in [] if event.drained else list(self._ledger.holders):
            container = self._state.containers[name]
            if event.device in self._ledger.accounts[name] and not container.sessions and not self._keeps_idle(name):
                self._take_idle(name)

    def _take_headroom_if_overcommitted(self) -> bool:
        overcommitted = bool(self._ledger.overcommitted)
        if overcommitted:
            self._headroom.take_from(self._ledger.holders)
        return overcommitted

    def _take_headroom_if_targets(self) -> None:
        if self._ledger.targets:
            self._headroom.take_from(self._ledger.holders)

    # -- rules -------------------------------------------------------------------------------------------

    @apply.register
    def _choose_policy(self, event: e.PolicyChosen) -> None:
        self._state.policy = make_policy(event.policy, event.seed)

    @apply.register
    def _choose_placement_policy(self, event: PlacementPolicyChosen) -> None:
        self._state.placement_policy = PLACEMENT_POLICIES[event.policy]

    @apply.register
    def _bound_reuse(self, event: ReuseBounded) -> None:
        self._state.reuse[event.device] = event.count

    @apply.register
    def _place(self, event: PlacementRequested) -> None:
        self._placer.place(event)

    @apply.register
    def _end_recovery(self, _event: e.RecoveryEnded) -> None:
        end_recovery(self._state)
        self._allocator.reservations.end_recovery()
        for name in self._state.containers:
            self._placer.free(name)
        self._placer.find_on_lost()
        reserve_again(self._state)
        self._take_headroom_if_targets()
