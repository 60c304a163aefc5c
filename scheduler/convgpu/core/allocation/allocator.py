"""Answers: who gets memory, who waits, who is refused.

A process takes from its headroom without asking, so what is known of its usage is an upper bound, the lease.
Before anybody is refused or has to wait, unused lease is taken back (TakeHeadroom) and the decision is made on the
exact figures that come back with HeadroomTaken. What siblings hold is looked at first, and where headroom is likely, a
few slots at a time: so an answer does not cost more the more containers there are. All others are looked at before
somebody has to wait. While anybody waits, every process that has a lease is told to report what it frees
(NotifyOnFree), so that no free memory can lie in a headroom unseen (invariant 3). The order NotifyOnFree, then
TakeHeadroom, pairs with the hook's order give, then look at `armed` (docs/model).
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from convgpu.core import events as e
from convgpu.core.allocation.fairness import eligible, serving_order
from convgpu.core.events import HistoryKind, RejectReason
from convgpu.core.state import Request, SlotKey, State
from convgpu.core.step import StepBuilder
from convgpu.policies.memory.base import Waiting

_FEW: Final = 16  # words that are looked at first; then twice as many, and so on


class Allocator:
    """Decides from a state, changes it accordingly, and adds what has to be done to the step."""

    def __init__(self, state: State, step: StepBuilder) -> None:
        self._step = step
        self._state = state
        self._ledger = state.ledger
        self._watching = False  # all words with a lease are armed, because somebody waits
        self._few = _FEW

    # -- what processes say ------------------------------------------------------------------------------

    def ask(self, event: e.AllocationRequested, now: float) -> None:
        """Answer at once what needs no exact figures; for the rest have the headrooms taken first."""
        state = self._state
        name = state.sessions[event.session]
        account = self._ledger.accounts[name].get(event.device)
        request = self._request(event, name, now)
        if account is None:
            self._reject(request, RejectReason.DEVICE, now)
        elif event.size > max(account.limit, account.target or 0):
            self._reject(request, RejectReason.LIMIT, now)
        elif event.size <= account.idle or self._grant_whole_limit(request):
            self._accept(request, now)
            if state.containers[name].requests:  # on a drained device; one of them may be beyond the limit now
                self.serve(now)
        else:
            # While others wait nothing lies in headrooms but what siblings freed and have just reported.
            self._few = _FEW
            self._take_headroom(self._words([name]) + ([] if self._watching else self._likely(event.device)))
            state.enqueue(request)

    def _request(self, event: e.AllocationRequested, name: str, now: float) -> Request:
        container = self._state.containers[name]
        # Nothing of a grant is idle while somebody waits, so all of `size` is missing.
        view = Waiting(
            sequence=self._state.arrive(),
            container=name,
            container_order=container.order,
            device=event.device,
            request=event.request,
            size=event.size,
            missing=event.size,
            since=now,
            priority=container.priority,
        )
        return Request(event, view, None if container.wait is None else now + container.wait)

    def take(self, event: e.HeadroomTaken) -> None:
        """Book what came back. A word can lie; it never counts for more than was leased."""
        for (session, device), size in event.taken:
            name = self._state.sessions[session]
            leased = self._ledger.accounts[name][device].leases.get(session, 0)
            self._ledger.lease(name, device, session, -min(size, leased))

    def freed(self, event: e.MemoryFreed) -> None:
        """Take what was freed; the report took the order to report with it, so it is given anew first."""
        word = (event.session, event.device)
        if word in self._state.armed:
            self._step.add(e.NotifyOnFree(*word, armed=True))
            self._take_headroom([word])

    # -- headroom ----------------------------------------------------------------------------------------

    def look(self, containers: Iterable[str]) -> None:
        """Have everything taken back that processes of these containers lease and may not use."""
        self._take_headroom(self._words(containers))

    def _take_headroom(self, words: Iterable[SlotKey]) -> None:
        each = dict.fromkeys(words)  # taken twice, the second answer would hide the first
        for session, device in each:
            self._state.ahead[device].pop(session, None)
        self._step.need(e.TakeHeadroom(tuple(each)))

    def _likely(self, device: str) -> list[SlotKey]:
        """Return the next words to look at for memory of a device: those that were leased ahead, longest ago first."""
        words = [(session, device) for session in islice(self._state.ahead[device], self._few)]
        self._few *= 2
        return words

    def _look_further(self) -> bool:
        """Before somebody has to wait: look at a few more words, if any are left in which headroom is likely."""
        for device in self._state.ahead:
            if self._state.is_needed(device) and (words := self._likely(device)):
                self._take_headroom(words)
                return True
        return False

    def arm(self, containers: Iterable[str]) -> None:
        """Tell processes to report what they free, where somebody waits for it."""
        for word in self._words(containers):
            if word not in self._state.armed and self._should_be_armed(word):
                self._state.armed[word] = None
                self._step.add(e.NotifyOnFree(*word, armed=True))

    def _should_be_armed(self, word: tuple[int, str]) -> bool:
        """Does somebody wait, or a lower limit for what is freed?"""
        session, device = word
        account = self._ledger.accounts[self._state.sessions[session]][device]
        return self._watching or (account.target is not None and account.target < account.limit)

    def _disarm(self) -> None:
        for word in list(self._state.armed):
            if not self._should_be_armed(word):
                del self._state.armed[word]
                self._step.add(e.NotifyOnFree(*word, armed=False))

    def _words(self, containers: Iterable[str]) -> list[SlotKey]:
        return [
            (session, device)
            for name in containers
            for device, account in self._ledger.accounts[name].items()
            for session, lease in account.leases.items()
            if lease
        ]

    # -- serving -----------------------------------------------------------------------------------------

    def serve(self, now: float) -> None:
        """Give what is free to the waiting, as far as limits and safety allow, then see who still waits."""
        self._take_surplus()
        while (request := self.next(now)) is not None:
            self._state.dequeue(request)
            account = self._state.account(request)
            if self._exceeds(request):
                self._reject(request, RejectReason.LIMIT, now)
                continue
            missing = max(request.asked.size - account.idle, 0)
            self._ledger.grant(request.container, request.asked.device, missing)
            self._grant_whole_limit(request)
            self._accept(request, now)
        scarce = self._state.scarce
        if scarce and not self._watching:
            if self._look_further():
                return
            self._watching = True
            self.arm(self._ledger.holders)
            # Somebody may have freed between the first look and being told to report it: look once more.
            self.look(self._ledger.holders)
            return
        self._reject_beyond_limits(now)
        if not self._state.scarce:
            self._watching = False
            self._disarm()
        self._record_pauses(now)

    def _reject_beyond_limits(self, now: float) -> None:
        """Refuse what would have to wait for a higher limit: that waits for others, who may wait for this container.

        On an overcommitted device it is memory outside that keeps the limit from being raised.
        """
        state, ledger = self._state, self._ledger
        if state.recovering:
            return
        for name, device in list(ledger.targets):
            account = ledger.accounts[name][device]
            for request in list(state.containers[name].requests.values()) if ledger.free[device] >= 0 else ():
                if request.asked.device == device and account.held + request.asked.size > account.limit:
                    state.dequeue(request)
                    self._reject(request, RejectReason.LIMIT, now)

    def next(self, now: float) -> Request | None:
        """Choose the request to answer next: out of its own grant or against its limit first, then by policy."""
        state, ledger = self._state, self._ledger
        if not state.recovering:
            ledger.apply_targets()
        if not state.queue and not ledger.targets:
            return None
        for name in ledger.touched:
            for request in state.containers[name].requests.values():
                if request.asked.size <= state.account(request).idle or self._exceeds(request):
                    return request
        if state.recovering:
            return None
        self._take_idle()
        ledger.apply_targets()
        for chosen in serving_order(state, eligible(state, now), now):
            if ledger.is_safe_to_grant(chosen.container, chosen.device, chosen.missing):
                return state.queue[chosen.sequence]
        return None

    def _take_idle(self) -> None:
        """Take back what of all grants is in nobody's hands. On a drained device nobody could be given it."""
        for name in self._ledger.touched:
            for device in self._ledger.accounts[name]:
                if device not in self._state.drained:
                    self._ledger.take_idle(name, device)
        self._ledger.touched.clear()
        self._ledger.reckon()

    def _take_surplus(self) -> None:
        """Nothing is idle on an overcommitted device."""
        overcommitted = [device for device, free in self._ledger.free.items() if free < 0]
        if overcommitted:
            for name in self._ledger.holders:
                for device in overcommitted:
                    if device in self._ledger.accounts[name]:
                        self._ledger.take_idle(name, device)
        self._ledger.reckon()

    def _exceeds(self, request: Request) -> bool:
        """Is it beyond the limit, and beyond a higher one that may come into force?"""
        account = self._state.account(request)
        return account.held + request.asked.size > max(account.limit, account.target or 0)

    def _grant_whole_limit(self, request: Request) -> bool:
        """Grant ahead when nobody waits and the container could end with what is free: always safe."""
        state, device = self._state, request.asked.device
        account = state.account(request)
        missing = self._ledger.missing(request.container, device)
        if state.scarce or state.recovering or device in state.drained or request.asked.size > account.idle + missing:
            return False
        if not self._ledger.can_end(request.container):
            return False
        self._ledger.grant(request.container, device, missing)
        return True

    # -- answers -----------------------------------------------------------------------------------------

    def _accept(self, request: Request, now: float) -> None:
        """Answer. If nobody waits, lease the session's share of what is left of the grant ahead of the answer."""
        asked, name = request.asked, request.container
        device = asked.device
        account = self._state.account(request)
        self._ledger.lease(name, device, asked.session, asked.size)
        account.high_water_mark = max(account.high_water_mark, account.leased)
        share = 0 if self._state.scarce else account.idle // self._state.containers[name].sessions
        if share:
            self._ledger.lease(name, device, asked.session, share)
            self._step.add(e.Lease(asked.session, device, share))
            self._state.ahead[device].pop(asked.session, None)
            self._state.ahead[device][asked.session] = None
        self.arm([name])
        settling = sum(self._state.settling[device].values())
        self._step.add(e.Accept(asked.session, asked.request, asked.size, settling))
        self._record(request, HistoryKind.GRANTED if request.paused else HistoryKind.ACCEPTED, now)

    def _reject(self, request: Request, reason: RejectReason, now: float) -> None:
        asked = request.asked
        self._step.add(e.Reject(asked.session, asked.request, reason))
        self._record(request, HistoryKind.REJECTED, now, reason)

    def reject_late(self, now: float) -> None:
        """Refuse those whose container's `wait` has run out."""
        for request in self._state.queue.late(now):
            self._state.dequeue(request)
            self._reject(request, RejectReason.DEADLINE, now)

    def _record_pauses(self, now: float) -> None:
        for request in self._state.fresh:
            if request in self._state.queue:
                request.paused = True
                self._record(request, HistoryKind.PAUSED, now)
        self._state.fresh.clear()

    def _record(self, request: Request, kind: HistoryKind, now: float, reason: RejectReason | None = None) -> None:
        asked = request.asked
        waited = now - request.view.since if request.paused and kind is not HistoryKind.PAUSED else None
        self._step.add(
            e.HistoryEntry(
                kind, request.container, asked.device, asked.size, asked.session, asked.request, waited, reason
            )
        )
