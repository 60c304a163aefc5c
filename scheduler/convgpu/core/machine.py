"""The scheduler as a pure machine: `handle(event, now) -> effects`. State changes nowhere else.

A process takes from its headroom without asking, so what the machine knows of its usage is an upper bound, the
lease. Before it says no, or lets somebody wait, it has unused lease taken back (TakeHeadroom) and decides on the
exact figures that come back with HeadroomTaken. While anybody waits, every process is told to report what it
frees (Want), so that no free memory can lie in a headroom unseen (invariant 3). The order Want, then
TakeHeadroom, pairs with the hook's order give, then look at `wanted`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from convgpu.core import events as e
from convgpu.core.errors import InvariantBrokenError
from convgpu.core.events import Effect, Event, Kind, Refusal
from convgpu.core.ledger import Account, Ledger
from convgpu.core.state import Container, Request
from convgpu.policies.base import Policy, Waiting


class Machine:
    """Ledger, sessions and waiting allocations of one host.

    Args:
        capacity: bytes per device UUID that may be handed out.
        policy: chooses who of the waiting is served.
        patience: seconds after which a waiting allocation is overdue: nobody who holds nothing is served before
            it any more. Together with safety this bounds every wait by the ends of those that hold memory.
        recovering: give no grants until RecoveryEnded, so that processes of an earlier scheduler can come back.
    """

    def __init__(
        self, capacity: Mapping[str, int], policy: Policy, patience: float = 60.0, *, recovering: bool = False
    ) -> None:
        self.ledger = Ledger(capacity)
        self.policy = policy
        self.patience = patience
        self.recovering = recovering
        self._containers: dict[str, Container] = {}
        self._sessions: dict[int, str] = {}
        self._requests: dict[int, Request] = {}  # in the order of their sequence
        self._fresh: list[Request] = []  # of those, not yet recorded as paused
        self._settling: dict[str, dict[int, int]] = {device: {} for device in capacity}
        self._wanting = False
        self._arrivals = 0
        self._effects: list[Effect] = []

    # -- views -------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Waiting]:
        """The allocations without an answer, oldest first."""
        return [request.view for request in self._requests.values()]

    def settling(self, device: str) -> int:
        """Bytes that ended processes used and the driver may not have freed yet."""
        return sum(self._settling[device].values())

    def next_deadline(self) -> float | None:
        """When TimePassed is due, on the clock of the events. Never while no grants are given: that is our delay."""
        if self.recovering:
            return None
        return min((r.deadline for r in self._requests.values() if r.deadline is not None), default=None)

    def _account(self, request: Request) -> Account:
        return self.ledger.accounts[request.container][request.asked.device]

    # -- events ------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Apply an event at `now` (seconds of a monotonic clock) and return what is to be done, in order.

        If the last effect is TakeHeadroom, HeadroomTaken has to be the next event.
        """
        self._effects = []
        match event:
            case e.AllocationAsked():
                self._ask(event, now)
            case e.HeadroomTaken():
                self._take(event)
                self._serve(now)
            case e.MemoryFreed():
                self._free(event)
            case e.SessionStarted() | e.SessionResumed() | e.SessionEnded():
                self._change_session(event)
                self._serve(now)
            case e.SettlingEnded():
                for settling in self._settling.values():
                    settling.pop(event.session, None)
            case e.RecoveryEnded():
                self.recovering = False
                self._serve(now)
            case e.TimePassed():
                self._reject_late(now)
                self._serve(now)
            case _:
                self._change_container(event)
                self._serve(now)
        return self._effects

    def _change_container(
        self,
        event: e.ContainerCreated | e.LimitsSet | e.ContainerStarted | e.ContainerEnded | e.ContainerRemoved,
    ) -> None:
        match event:
            case e.ContainerCreated(name, limits, wait):
                self._arrivals += 1
                self._containers[name] = Container(self._arrivals, wait)
                self.ledger.open(name, limits)
            case e.LimitsSet(name, limits):
                self.ledger.open(name, limits)
            case e.ContainerStarted(name):
                self._containers[name].mounted = True
            case e.ContainerEnded(name):
                self._containers[name].mounted = False
                self.ledger.revoke_unleased(name)
            case e.ContainerRemoved(name):
                self.ledger.close(name)
                del self._containers[name]
            case _:
                assert_never(event)

    def _change_session(self, event: e.SessionStarted | e.SessionResumed | e.SessionEnded) -> None:
        match event:
            case e.SessionStarted():
                self._start_session(event)
            case e.SessionResumed():
                self._resume_session(event)
            case e.SessionEnded():
                self._end_session(event)

    def _start_session(self, event: e.SessionStarted) -> None:
        """Open a session. What it holds already is a fact: granted even if nothing is free, up to its limit."""
        self._sessions[event.session] = event.container
        self._containers[event.container].sessions += 1
        for device, account in self.ledger.accounts[event.container].items():
            held = min(event.held.get(device, 0), account.limit - account.leased)
            self.ledger.grant(event.container, device, max(held - account.unleased, 0))
            account.lease(event.session, held)
        if self._wanting:
            self._tell([event.session])

    def _resume_session(self, event: e.SessionResumed) -> None:
        """Hand the leases on; what the process does not use of them is unleased. It asks its open requests again."""
        name = self._sessions.pop(event.former)
        self._sessions[event.session] = name
        self._forget_requests(name, event.former)
        for device, account in self.ledger.accounts[name].items():
            lease = account.end_lease(event.former)
            account.lease(event.session, min(event.held.get(device, 0), lease))
        if self._wanting:
            self._tell([event.session])

    def _forget_requests(self, container: str, session: int) -> None:
        for request in list(self._containers[container].requests.values()):
            if request.asked.session == session:
                self._dequeue(request)

    def _end_session(self, event: e.SessionEnded) -> None:
        """Give the whole lease back; the part that was used is settling. Its open requests go with it."""
        name = self._sessions.pop(event.session)
        container = self._containers[name]
        container.sessions -= 1
        self._forget_requests(name, event.session)
        for device, account in self.ledger.accounts[name].items():
            lease = account.end_lease(event.session)
            used = lease - min(event.headroom.get(device, 0), lease)
            if used:
                self._settling[device][event.session] = used
                self._effects.append(e.Happened(Kind.RETURNED, name, device, used, event.session))
        if not container.mounted and not container.sessions:
            self.ledger.revoke_unleased(name)

    def _ask(self, event: e.AllocationAsked, now: float) -> None:
        """Answer at once what needs no exact figures; for the rest have the headrooms taken first."""
        name = self._sessions[event.session]
        account = self.ledger.accounts[name].get(event.device)
        if account is None:
            self._effects.append(e.Reject(event.session, event.request, Refusal.DEVICE))
            rejected = e.Happened(Kind.REJECTED, name, event.device, event.size, event.session, event.request)
            self._effects.append(replace(rejected, refusal=Refusal.DEVICE))
            return
        container = self._containers[name]
        self._arrivals += 1
        deadline = None if container.wait is None else now + container.wait
        # Nothing of a grant is idle while somebody waits, so all of `size` is missing.
        view = Waiting(
            sequence=self._arrivals,
            container=name,
            container_order=container.order,
            device=event.device,
            request=event.request,
            size=event.size,
            missing=event.size,
            since=now,
        )
        request = Request(event, view, deadline)
        if event.size > account.limit:
            self._reject(request, Refusal.LIMIT, now)
        elif event.size <= account.unleased or self._grant_whole_limit(request):
            self._accept(request, now)
        else:
            # While others wait nothing lies in headrooms but what siblings freed and have just reported.
            self._take_headroom([name] if self._requests else self.ledger.holders)
            self._enqueue(request)

    def _grant_whole_limit(self, request: Request) -> bool:
        """Grant ahead when nobody waits and the container could end with what is free: always safe."""
        account = self._account(request)
        if self._requests or self.recovering or self._exceeds(request) or not self.ledger.can_end(request.container):
            return False
        self.ledger.grant(request.container, request.asked.device, account.missing)
        return True

    def _take_headroom(self, containers: Iterable[str]) -> None:
        """Have everything taken back that processes of these containers lease and may not use."""
        words = [
            (session, device)
            for name in containers
            for device, account in self.ledger.accounts[name].items()
            for session, lease in account.leases.items()
            if lease
        ]
        self._effects.append(e.TakeHeadroom(tuple(words)))

    def _take(self, event: e.HeadroomTaken) -> None:
        """Book what came back. A word can lie; it never counts for more than was leased."""
        for (session, device), size in event.taken.items():
            account = self.ledger.accounts[self._sessions[session]][device]
            account.lease(session, -min(size, account.leases.get(session, 0)))

    def _free(self, event: e.MemoryFreed) -> None:
        """Take what was freed; the report took the order to report with it, so it is given anew first."""
        account = self.ledger.accounts[self._sessions[event.session]].get(event.device)
        if self._requests and account and event.session in account.leases:
            self._effects.append(e.Want(event.session, event.device, wanted=True))
            self._effects.append(e.TakeHeadroom(((event.session, event.device),)))

    # -- serving -----------------------------------------------------------------------------------------

    def _serve(self, now: float) -> None:
        """Give what is free to the waiting, as far as limits and safety allow, then see who still waits."""
        while (request := self._next(now)) is not None:
            self._dequeue(request)
            account = self._account(request)
            if self._exceeds(request):
                self._reject(request, Refusal.LIMIT, now)
                continue
            missing = max(request.asked.size - account.unleased, 0)
            self.ledger.grant(request.container, request.asked.device, missing)
            if not self._requests:
                self._grant_whole_limit(request)
            self._accept(request, now)
        if self._wanting != bool(self._requests):
            self._wanting = bool(self._requests)
            self._tell(self._sessions)
            if self._wanting:
                # Somebody may have freed between the first look and being told to report it: look once more.
                self._take_headroom(self.ledger.holders)
                return
        self._record_pauses(now)

    def _next(self, now: float) -> Request | None:
        """Choose the request to answer next: out of its own grant or against its limit first, then by policy."""
        if not self._requests:
            return None
        for name in self.ledger.holders:  # without a grant there is neither a rest of it nor a limit in reach
            for request in self._containers[name].requests.values():
                account = self._account(request)
                if request.asked.size <= account.unleased or self._exceeds(request):
                    return request
        if self.recovering:
            return None
        for name in self.ledger.holders:
            self.ledger.revoke_unleased(name)
        for chosen in self.policy.rank(self._eligible(now), self.ledger.free):
            if self.ledger.is_safe_to_grant(chosen.container, chosen.device, chosen.missing):
                return self._requests[chosen.sequence]
        return None

    def _exceeds(self, request: Request) -> bool:
        account = self._account(request)
        return account.leased + request.asked.size > account.limit

    def _enqueue(self, request: Request) -> None:
        self._requests[request.sequence] = request
        self._containers[request.container].requests[request.sequence] = request
        self._fresh.append(request)

    def _dequeue(self, request: Request) -> None:
        del self._requests[request.sequence]
        del self._containers[request.container].requests[request.sequence]

    def _eligible(self, now: float) -> list[Waiting]:
        """All that fit; while some are overdue those that must not go before them are left out.

        The oldest overdue allocation of each device is served as soon as it can be. Until then whoever holds
        nothing yet is not served on that device; and if it fits but would not be safe, it is the holders of other
        devices that it waits for, so then on none of its container's devices. Why nobody waits for ever: those
        that hold memory can all end without help of those that hold none (the state is safe).
        """
        free = self.ledger.free
        fitting = [one for one in self.waiting if one.missing <= free[one.device]]
        overdue = self._overdue(now)
        if not overdue:
            return fitting
        kept = set(overdue)
        for device, one in overdue.items():
            if self.ledger.is_safe_to_grant(one.container, device, one.missing):
                return [one]
            if one.missing <= free[device]:
                kept |= self.ledger.accounts[one.container].keys()
        holders = set(self.ledger.holders)
        return [one for one in fitting if one.container in holders or one.device not in kept]

    def _overdue(self, now: float) -> dict[str, Waiting]:
        """Return the oldest overdue allocation of each device that has one, oldest first."""
        overdue: dict[str, Waiting] = {}
        for request in self._requests.values():
            if now - request.view.since < self.patience:
                break
            overdue.setdefault(request.view.device, request.view)
        return overdue

    def _accept(self, request: Request, now: float) -> None:
        """Answer. If nobody waits, lease the session's share of what is left of the grant ahead of the answer."""
        asked = request.asked
        account = self._account(request)
        account.lease(asked.session, asked.size)
        device = asked.device
        share = 0 if self._requests else account.unleased // self._containers[request.container].sessions
        if share:
            account.lease(asked.session, share)
            self._effects.append(e.Lease(asked.session, device, share))
        self._effects.append(e.Accept(asked.session, asked.request, asked.size, self.settling(device)))
        kind = Kind.RESUMED if request.paused else Kind.ACCEPTED
        self._record(request, kind, now)

    def _reject(self, request: Request, refusal: Refusal, now: float) -> None:
        asked = request.asked
        self._effects.append(e.Reject(asked.session, asked.request, refusal))
        self._record(request, Kind.REJECTED, now, refusal)

    def _reject_late(self, now: float) -> None:
        for request in list(self._requests.values()):
            if not self.recovering and request.deadline is not None and request.deadline <= now:
                self._dequeue(request)
                self._reject(request, Refusal.DEADLINE, now)

    def _tell(self, sessions: Iterable[int]) -> None:
        """Tell processes whether to report what they free."""
        self._effects += [
            e.Want(session, device, self._wanting)
            for session in sessions
            for device in self.ledger.accounts[self._sessions[session]]
        ]

    def _record_pauses(self, now: float) -> None:
        for request in self._fresh:
            if request.sequence in self._requests:
                request.paused = True
                self._record(request, Kind.PAUSED, now)
        self._fresh.clear()

    def _record(self, request: Request, kind: Kind, now: float, refusal: Refusal | None = None) -> None:
        asked = request.asked
        waited = now - request.view.since if request.paused and kind is not Kind.PAUSED else None
        self._effects.append(
            e.Happened(
                kind,
                request.container,
                asked.device,
                asked.size,
                asked.session,
                asked.request,
                waited,
                refusal,
            )
        )

    def check_invariants(self, now: float) -> None:
        """Check ledger and queue. Not between TakeHeadroom and HeadroomTaken.

        Raises:
            InvariantBrokenError: the ledger is wrong, something of an ended session is left, or a waiting
                allocation could be served (invariant 3).
        """
        self.ledger.check_invariants()
        for name, accounts in self.ledger.accounts.items():
            for account in accounts.values():
                strangers = [session for session in account.leases if self._sessions.get(session) != name]
                if strangers:
                    raise InvariantBrokenError(f"leases of sessions that are not {name}'s: {strangers}")
        if any(request.asked.session not in self._sessions for request in self._requests.values()):
            raise InvariantBrokenError("an allocation of an ended session waits")
        if self._wanting != bool(self._requests):
            raise InvariantBrokenError("somebody waits and frees are not reported, or the other way round")
        if (request := self._next(now)) is not None:
            raise InvariantBrokenError(f"waits and could be served: {request}")
