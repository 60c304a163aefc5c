"""The scheduler as a pure machine: `handle(event, now) -> Step`. State changes nowhere else.

What each event changes stands here; what follows for those that wait, in `serving`.
"""

from collections.abc import Mapping
from typing import assert_never

from convgpu.core import events as e
from convgpu.core.allocation.allocator import Allocator
from convgpu.core.allocation.wait_reasons import Wait, explain
from convgpu.core.errors import InvariantBrokenError
from convgpu.core.events import Event, HistoryKind, TakeHeadroom
from convgpu.core.memory.account import AccountView
from convgpu.core.memory.ledger import Ledger
from convgpu.core.memory.snapshot import DeviceView, LedgerSnapshot
from convgpu.core.state import Container, State
from convgpu.core.step import Step, StepBuilder
from convgpu.policies.memory import Policy, Waiting, make_policy


class Machine:
    """Ledger, sessions and waiting allocations of one host.

    Args:
        capacity: bytes per device UUID that may be handed out.
        policy: chooses who of the waiting is served.
        starvation_timeout: seconds after which a waiting allocation is overdue: nobody who holds nothing is served
            before it any more (allocation/fairness.py). Together with safety this bounds every wait by the ends of
            those that hold memory.
        recovering: give no grants until RecoveryEnded, so that processes of an earlier scheduler can come back.
    """

    def __init__(
        self, capacity: Mapping[str, int], policy: Policy, starvation_timeout: float = 60.0, *, recovering: bool = False
    ) -> None:
        self._state = State(capacity, policy, starvation_timeout, recovering=recovering)
        self._step = StepBuilder()
        self._allocator = Allocator(self._state, self._step)
        self._due: TakeHeadroom | None = None  # the question whose answer has to be the next event

    # -- views -------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """Limits, grants and leases, live: for the core and for tests that judge it. All others read views."""
        return self._state.ledger

    @property
    def devices(self) -> frozenset[str]:
        """All devices of this host."""
        return frozenset(self._state.settling)

    @property
    def holders(self) -> tuple[str, ...]:
        """The containers that were granted memory."""
        return tuple(self._state.ledger.holders)

    def snapshot(self) -> LedgerSnapshot:
        """Return all accounts and devices as they are now.

        Costs as much as there are accounts: for what runs about once a second. What runs for each request reads single
        accounts and devices instead.
        """
        return self._state.ledger.snapshot()

    def device(self, device: str) -> DeviceView:
        """Return the figures of a device as they are now.

        Raises:
            KeyError: it is none of this host's.
        """
        return self._state.ledger.view_device(device)

    def account(self, container: str, device: str) -> AccountView | None:
        """Return the account of a container on a device as it is now; None without a limit there."""
        account = self._state.ledger.accounts.get(container, {}).get(device)
        return None if account is None else account.view()

    def accounts(self, container: str) -> Mapping[str, AccountView]:
        """Return the accounts of a container by device, as they are now; none when it has no limits."""
        accounts = self._state.ledger.accounts.get(container, {})
        return {device: account.view() for device, account in accounts.items()}

    def lease(self, session: int, device: str) -> int:
        """Return how many bytes of a device are leased to a session; 0 when it has none or has ended."""
        container = self._state.sessions.get(session, "")
        account = self._state.ledger.accounts.get(container, {}).get(device)
        return 0 if account is None else account.leases.get(session, 0)

    @property
    def policy(self) -> Policy:
        """The one that chooses now."""
        return self._state.policy

    @property
    def starvation_timeout(self) -> float:
        """Seconds after which a waiting allocation is overdue."""
        return self._state.starvation_timeout

    @property
    def recovering(self) -> bool:
        """Are no grants given yet, because processes of an earlier scheduler may come back?"""
        return self._state.recovering

    @property
    def drained(self) -> frozenset[str]:
        """The devices on which no grants are given."""
        return frozenset(self._state.drained)

    @property
    def waiting(self) -> list[Waiting]:
        """The allocations without an answer, oldest first."""
        return [request.view for request in self._state.queue]

    def explain(self, now: float) -> dict[int, Wait]:
        """Say of every waiting allocation, by the number of its request, why it waits."""
        return explain(self._state, now)

    def settling(self, device: str) -> int:
        """Bytes that ended processes used and the driver may not have freed yet."""
        return sum(self._state.settling[device].values())

    def next_deadline(self) -> float | None:
        """When TimePassed is due, on the clock of the events. Never while no grants are given: that is our delay."""
        return None if self.recovering else self._state.queue.next_deadline()

    # -- events ------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> Step:
        """Apply an event at `now` (seconds of a monotonic clock) and return what has to be done.

        Raises:
            InvariantBrokenError: the last step needs another event next.
        """
        self._check_answer(event)
        match event:
            case e.AllocationRequested():
                self._allocator.ask(event, now)
            case e.MemoryFreed():
                self._allocator.freed(event)
            case e.SettlingEnded():
                for settling in self._state.settling.values():
                    settling.pop(event.session, None)
            case _:
                self._change(event, now)
                if not self._step.is_waiting:
                    self._allocator.serve(now)
        if not self._step.is_waiting:
            self._tell_limits()
        step = self._step.build()
        self._due = step.needs
        return step

    def _check_answer(self, event: Event) -> None:
        """Let nothing but the answer follow a question, and no answer without its question."""
        asked = set(self._due.slots) if self._due else None
        answered = {slot for slot, _ in event.taken} if isinstance(event, e.HeadroomTaken) else None
        if asked != answered:
            raise InvariantBrokenError(f"{event} is not the answer to {self._due}")

    def _tell_limits(self) -> None:
        for container, device in self.ledger.changed_limits:
            account = self.ledger.accounts[container][device]
            self._step.add(e.LimitInForce(container, device, account.limit, account.target))
        self.ledger.changed_limits.clear()

    def _change(self, event: Event, now: float) -> None:
        match event:
            case e.HeadroomTaken():
                self._allocator.take(event)
            case e.TimePassed():
                if not self.recovering:
                    self._allocator.reject_late(now)
            case e.SessionStarted() | e.SessionReconnected() | e.SessionEnded():
                self._change_session(event)
            case e.LimitsChanged() | e.UnleasedMemory() | e.CapacityChanged():
                self._change_memory(event)
            case e.DeviceDrained() | e.PolicyChosen() | e.RecoveryEnded():
                self._change_rule(event)
            case (
                e.ContainerCreated() | e.LimitsSet() | e.ContainerStarted() | e.ContainerEnded() | e.ContainerRemoved()
            ):
                self._change_container(event)
            case e.AllocationRequested() | e.MemoryFreed() | e.SettlingEnded():
                pass  # nothing more follows from them
            case _:
                assert_never(event)

    def _change_container(
        self,
        event: e.ContainerCreated | e.LimitsSet | e.ContainerStarted | e.ContainerEnded | e.ContainerRemoved,
    ) -> None:
        containers = self._state.containers
        match event:
            case e.ContainerCreated(name, limits, wait, priority):
                containers[name] = Container(self._state.arrive(), wait, priority)
                self.ledger.open(name, limits)
            case e.LimitsSet(name, limits):
                self.ledger.open(name, limits)
            case e.ContainerStarted(name):
                containers[name].mounted = True
            case e.ContainerEnded(name):
                containers[name].mounted = False
                self._take_idle(name)
            case e.ContainerRemoved(name):
                self.ledger.close(name)
                del containers[name]

    # -- sessions ----------------------------------------------------------------------------------------

    def _change_session(self, event: e.SessionStarted | e.SessionReconnected | e.SessionEnded) -> None:
        match event:
            case e.SessionStarted():
                self._start_session(event)
            case e.SessionReconnected():
                self._resume_session(event)
            case e.SessionEnded():
                self._end_session(event)

    def _start_session(self, event: e.SessionStarted) -> None:
        """Open a session. What it holds already is a fact: granted even if nothing is free, up to its limit."""
        self._state.sessions[event.session] = event.container
        self._state.containers[event.container].sessions += 1
        for device in self.ledger.accounts[event.container]:
            self.ledger.adopt(event.container, device, event.session, event.held.get(device, 0))
        self._allocator.arm([event.container])
        self._look_where_overcommitted()

    def _resume_session(self, event: e.SessionReconnected) -> None:
        """Hand the leases on; what the process does not use of them is idle. It asks its open requests again."""
        name = self._state.sessions.pop(event.former)
        self._state.sessions[event.session] = name
        self._state.forget_requests(name, event.former)
        for device in self.ledger.accounts[name]:
            self._state.forget_word(event.former, device)
            held = event.held.get(device, 0)
            lease = self.ledger.move_lease(name, device, event.former, event.session, held)
            if event.late:
                self.ledger.adopt(name, device, event.session, held - lease)
        self._allocator.arm([name])
        if event.late:
            self._look_where_overcommitted()

    def _end_session(self, event: e.SessionEnded) -> None:
        """Give the whole lease back; the part that was used is settling. Its open requests go with it."""
        name = self._state.sessions.pop(event.session)
        container = self._state.containers[name]
        container.sessions -= 1
        self._state.forget_requests(name, event.session)
        for device in self.ledger.accounts[name]:
            self._state.forget_word(event.session, device)
            lease = self.ledger.end_lease(name, device, event.session)
            used = lease - min(event.headroom.get(device, 0), lease)
            if used:
                self._state.settling[device][event.session] = used
                self._step.add(e.HistoryEntry(HistoryKind.RETURNED, name, device, used, event.session))
        if not container.mounted and not container.sessions:
            self._take_idle(name)

    def _take_idle(self, container: str) -> None:
        for device in self.ledger.accounts[container]:
            self.ledger.take_idle(container, device)

    # -- memory and rules --------------------------------------------------------------------------------

    def _change_memory(self, event: e.LimitsChanged | e.UnleasedMemory | e.CapacityChanged) -> None:
        """Book it, then have a look at what is really in use where that decides what follows."""
        match event:
            case e.LimitsChanged(name, limits):
                for device, limit in limits.items():
                    self.ledger.ask_limit(name, device, limit)
                self._allocator.arm([name])
                if self.ledger.targets and not self.recovering:
                    self._allocator.look(self.ledger.holders)
            case e.UnleasedMemory(name, device, size):
                more = size > self.ledger.accounts[name][device].charged
                self.ledger.charge(name, device, size)
                if more and not self._look_where_overcommitted():
                    self._allocator.look([name])
            case e.CapacityChanged(device, capacity, nominal):
                self.ledger.change_capacity(device, capacity, nominal)
                self._look_where_overcommitted()

    def _look_where_overcommitted(self) -> bool:
        overcommitted = min(self.ledger.free.values()) < 0
        if overcommitted:
            self._allocator.look(self.ledger.holders)
        return overcommitted

    def _change_rule(self, event: e.DeviceDrained | e.PolicyChosen | e.RecoveryEnded) -> None:
        match event:
            case e.DeviceDrained(device, drained):
                (self._state.drained.add if drained else self._state.drained.discard)(device)
                self.ledger.touched |= dict.fromkeys(self.ledger.holders)  # idle grants may be taken from again
            case e.PolicyChosen(name, seed):
                self._state.policy = make_policy(name, seed)
            case e.RecoveryEnded():
                self._state.recovering = False
                if self.ledger.targets:
                    self._allocator.look(self.ledger.holders)

    def check_invariants(self, now: float) -> None:
        """Check ledger and queue. Not between TakeHeadroom and HeadroomTaken.

        Raises:
            InvariantBrokenError: the ledger is wrong, something of an ended session is left, or a waiting
                allocation could be served (invariant 3).
        """
        self.ledger.check_invariants()
        sessions = self._state.sessions
        for name, accounts in self.ledger.accounts.items():
            for device, account in accounts.items():
                strangers = [session for session in account.leases if sessions.get(session) != name]
                if strangers:
                    raise InvariantBrokenError(f"leases of sessions that are not {name}'s: {strangers}")
                silent = [
                    one for one, size in account.leases.items() if size and (one, device) not in self._state.armed
                ]
                if silent and self._state.scarce:
                    raise InvariantBrokenError(f"somebody waits, and frees are not reported by {silent}")
        if any(request.asked.session not in sessions for request in self._state.queue):
            raise InvariantBrokenError("an allocation of an ended session waits")
        self.ledger.touched |= dict.fromkeys(self.ledger.accounts)  # as if everything had to be looked at anew
        if (request := self._allocator.next(now)) is not None:
            raise InvariantBrokenError(f"waits and could be served: {request}")
