"""A simulated host that holds every answer of the machine against the invariants."""

from collections import Counter
from collections.abc import Mapping
from math import inf

from backfill_oracle import BackfillOracle

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.memory.ledger import Ledger
from convgpu.core.placement import Placed
from convgpu.policies.memory import WaitingAllocation
from convgpu.simulate.host import SimulatedHost

FACTS = (e.SessionStarted, e.CapacityChanged, e.UnleasedMemory)


class CheckedHost(SimulatedHost):
    """No decision may make an excess grow, let newcomers delay, or pass over an overdue request (invariant 5)."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        # As they were when the event came:
        self._newcomers: set[str] = set()  # containers that hold nothing
        self._waiting: list[WaitingAllocation] = []
        self._admitted: set[str] = set()  # as a whole: their grants are reserved
        self._brought: dict[tuple[str, str], int] = {}  # what the event says that a process has: no decision
        # By waiting request: the most that each container used of its device since it was paused.
        self._high_water_marks: dict[int, Counter[str]] = {}
        self.displaced_places: set[str] = set()  # containers that have processes, and whose place was taken from them
        self._backfill = BackfillOracle(self._ledger, self._required)

    @property
    def _ledger(self) -> Ledger:
        """The live ledger: only the checks of its decisions may read it, and ask what would be without a grant."""
        return self.machine._state.ledger

    def dispatch(self, event: e.Event) -> None:
        if isinstance(event, e.TermsChanged):
            changed = self.terms[event.container]._replace(wait=event.wait, priority=event.priority)
            self.terms[event.container] = changed
        before = self.excess()
        scenarios = {"deficit": self._ledger.free, "nominal deficit": self._ledger._nominal.free}
        overcommitted = [name for name, free in scenarios.items() if min(free.values()) < 0]
        self._newcomers = set(self._ledger.accounts) - set(self._ledger.holders)
        self._waiting = self.machine.waiting
        containers = self.machine._state.containers
        self._admitted = {name for name, container in containers.items() if container.is_admitted}
        self._brought = self._brought_by(event)
        super().dispatch(event)
        self._backfill.check(event, {waiting.request: waiting for waiting in self.machine.waiting})
        self._record_high_water_marks()
        after = self.excess()
        for name in overcommitted:
            del after[name]  # returned bytes go against the overcommit first, and help no container to end
        is_fact = isinstance(event, FACTS) or (isinstance(event, e.SessionReconnected) and event.late)
        is_fact |= isinstance(event, e.SessionEnded | e.SessionReconnected) and any(event.kept.values())
        assert is_fact or not after - before, f"{event} made it worse: {before} -> {after}"

    def _brought_by(self, event: e.Event) -> dict[tuple[str, str], int]:
        if not isinstance(event, e.SessionStarted | e.SessionReconnected):
            return {}
        container = self.processes[event.session].container
        return {(container, device): size for device, size in event.held.items()}

    def _record_high_water_marks(self) -> None:
        used = {device: self._used(device) for device in self._ledger.capacity}
        marks = {}
        for waiting in self.machine.waiting:
            is_counted = waiting.device not in self.machine.drained  # nobody can overtake on a drained device
            before = self._high_water_marks.get(waiting.request, Counter()) if is_counted else Counter[str]()
            marks[waiting.request] = before | used[waiting.device]
        self._high_water_marks = marks

    def _used(self, device: str) -> Counter[str]:
        """What each container uses of the device by its leases; what it uses beyond them is charged to it."""
        used: Counter[str] = Counter()
        for session, process in self.processes.items():
            used[process.container] += min(process.used[device], self.machine.lease(session, device))
        return used

    def excess(self) -> Counter[str]:
        """Bytes that facts took against the rules: beyond capacity, beyond a limit, and the safety deficit."""
        ledger = self._ledger
        excess = Counter({device: max(-free, 0) for device, free in ledger.free.items()})
        for name, accounts in ledger.accounts.items():
            for device, account in accounts.items():
                excess[f"{name} on {device}"] = max(account.grant + account.charged - account.limit, 0)
        excess["deficit"] = sum(ledger.deficit.values())
        excess["nominal deficit"] = sum(ledger.nominal_deficit.values())
        return excess

    def _accept(self, effect: e.Accept) -> None:
        request = self.pending[effect.request]
        super()._accept(effect)
        container = self.processes[effect.session].container
        # A process calls the driver at once only if nothing is settling.
        assert effect.settling == sum(used[request.device] for used in self.unsettled.values())
        self._backfill.accepted += 1
        self._check_overtaking(container, request)
        self._check_age(container, request)
        self._newcomers.discard(container)

    def _check_overtaking(self, container: str, request: e.AllocationRequested) -> None:
        """A newcomer that is served before an overdue request is backfilled, unless that waits for external memory.

        The bound is the starvation timeout on the request's own device, and twice that on all others on which the
        newcomer has a limit (invariant 5).
        """
        ledger = self._ledger
        if not self._gang(container) <= self._newcomers:
            return
        turn = self._turn(request)
        for other in self._waiting:
            if other.request == request.request or self._turn(self.pending.get(other.request)) > turn:
                continue
            if other.device in self.machine.drained:
                continue
            timeouts = 1 if other.device == request.device else 2
            is_bound = (
                other.device in ledger.accounts[container]
                and self._aged(other) >= timeouts * self.machine.starvation_timeout
            )
            if is_bound and not self._lacks_more_than_holders_have(other):
                self._backfill.passed(container, other.request)

    def _gang(self, container: str) -> set[str]:
        """Return the containers of its gang, or itself."""
        gang = self.terms[container].gang
        return {name for name, terms in self.terms.items() if gang and terms.gang == gang} or {container}

    def _whole(self, waiting: WaitingAllocation) -> dict[str, int]:
        """Return by device what has to be free for an allocation that is admitted with whole limits."""
        sizes: Counter[str] = Counter()
        for name in self._gang(waiting.container):
            if self.machine._state.awaits_admission(name):
                for device, account in self._ledger.accounts[name].items():
                    sizes[device] += account.limit - account.charged - account.grant
        return dict(sizes)

    def _required(self, waiting: WaitingAllocation) -> dict[str, int]:
        if self.machine._state.awaits_admission(waiting.container):
            return self._whole(waiting)
        return {waiting.device: waiting.size - self._ledger.accounts[waiting.container][waiting.device].idle}

    def _lacks_more_than_holders_have(self, other: WaitingAllocation) -> bool:
        """Return whether it waits for external memory, a drained device, or for others of its gang to come."""
        state, usable = self.machine._state, self._ledger.usable
        if state.awaits_admission(other.container):
            whole = self._whole(other)
            is_larger = any(size > usable[device] for device, size in whole.items())
            return is_larger or not state.drained.isdisjoint(whole) or bool(state.missing_members(other.container))
        leased = self._ledger.accounts[other.container][other.device].leased
        return leased + other.size > usable[other.device]

    def _could_be_served(self, other: WaitingAllocation) -> bool:
        state = self.machine._state
        if not state.awaits_admission(other.container):
            return self._ledger.is_safe_to_grant(other.container, other.device, other.size)
        whole = self._whole(other)
        fits = all(size <= self._ledger.free[device] for device, size in whole.items())
        return fits and state.drained.isdisjoint(whole) and not state.missing_members(other.container)

    def _turn(self, request: e.AllocationRequested | None) -> tuple[float, int]:
        """Return the place of a request among overdue ones, five points a timeout; last if it waits no more."""
        if request is None:
            return inf, 0
        container = self.processes[request.session].container
        head_start = self.terms[container].priority * self.machine.starvation_timeout / 5
        waiting = [other for other in self._waiting if other.request == request.request]
        return (waiting[0].since - head_start, waiting[0].sequence) if waiting else (self.now - head_start, 1 << 62)

    def _aged(self, waiting: WaitingAllocation) -> float:
        head_start = self.terms[waiting.container].priority * self.machine.starvation_timeout / 5
        return self.now - waiting.since + head_start

    def _check_age(self, container: str, request: e.AllocationRequested) -> None:
        """No overdue request that could be served is passed over, except for an older one or a new high-water mark.

        High-water marks count from when the overdue request was paused, so they give way to it for a bounded number of
        bytes. Whether the memory was granted just now, or was an idle grant of the container, makes no difference.
        An admission has the turn of the request that is answered first: with it the whole limits of its container and
        gang were granted, and the others of these are answered out of that, whatever their own turns are.
        """
        machine, device = self.machine, request.device
        if device in machine.drained or machine.recovering or container in self._admitted:
            return
        given = self._newly_admitted(container) or {(container, device): request.size}
        self._admitted |= {name for name, _ in given if machine._state.containers[name].is_admitted}
        used = self._used(device)[container]
        is_holder = container not in self._newcomers
        overdue = [other for other in self._waiting if self._aged(other) >= machine.starvation_timeout]
        overdue.sort(key=lambda other: self._turn(self.pending.get(other.request)))
        mine = self._turn(request)
        still_waiting = {other.request for other in machine.waiting}
        for other in overdue:
            if other.request not in still_waiting or other.device != device:
                continue
            if mine < self._turn(self.pending[other.request]):
                continue
            marks = self._high_water_marks[other.request]
            raises_mark = is_holder and used > marks[container]
            marks[container] = max(marks[container], used)
            # A container that returned everything in this very event is a newcomer, and so is one served after that.
            holds = other.container in self._ledger.holders and other.container not in self._newcomers
            if not raises_mark and (other is overdue[0] or holds):
                assert not self._could_be_without(given, other), f"{request} is served although {other} could be"

    def _newly_admitted(self, container: str) -> dict[tuple[str, str], int]:
        """Return what the present event granted to a container and its gang by admission, by container and device.

        Where a process brought memory with it, its container counts as admitted, and that memory was not granted now.
        """
        containers = self.machine._state.containers
        return {
            (name, device): account.grant - self._brought.get((name, device), 0)
            for name in sorted(self._gang(container))
            if containers[name].is_admitted and name not in self._admitted
            for device, account in self._ledger.accounts[name].items()
        }

    def _could_be_without(self, given: Mapping[tuple[str, str], int], other: WaitingAllocation) -> bool:
        """Return whether one that waits could be served if these grants had not been given."""
        ledger = self._ledger
        before = list(ledger.holders)
        for (name, device), size in given.items():
            ledger.grant(name, device, -size)
        could_be = self._could_be_served(other)
        for (name, device), size in given.items():
            ledger.grant(name, device, size)
        for name in before:  # in the order in which they became holders: it decides what is asked first
            ledger._holders[name] = ledger._holders.pop(name)
        return could_be

    def _place(self, effect: Placed) -> None:
        super()._place(effect)
        self._check_departure(effect)
        if effect.placement is not None and effect.placement.policy:
            self._check_choice(effect)

    def _check_departure(self, effect: Placed) -> None:
        """A place is taken from a living process only where its devices are lost or drained and it holds nothing."""
        processes = [process for process in self.processes.values() if process.container == effect.container]
        if effect.placement is None and processes:
            assert not any(size for process in processes for size in process.used.values())
            self.displaced_places.add(effect.container)
        else:
            self.displaced_places.discard(effect.container)

    def _check_choice(self, effect: Placed) -> None:
        """Each device that was chosen could be: not drained, and large enough. No better one was left."""
        placement, offer = effect.placement, self.machine.offer(effect.container)
        choice = self.machine.choice(effect.container)
        assert placement is not None
        assert choice is not None
        assert len(placement.devices) == choice.count
        loads = {}
        for device in offer.keys() - self.machine.drained - self.machine.lost:
            capacity = self._ledger.capacity[device]
            if offer[device] <= capacity:
                loads[device] = (self._promised(device, effect.container) + offer[device]) / capacity
        assert loads.keys() >= set(placement.devices)
        hidden = {row.device for row in placement.compared if row.obstacle == "hidden"}
        left = loads.keys() - set(placement.devices) - hidden
        if placement.policy == "least-promised" and not self.terms[effect.container].gang:
            worst = max(loads[device] for device in placement.devices)
            assert not any(loads[device] < worst for device in left), f"{effect} although {loads}"

    def _promised(self, device: str, container: str) -> int:
        """What limits, or learned ones, claim of the device for all others that are mounted or have a process."""
        active = self.mounted | {process.container for process in self.processes.values()}
        accounts = ((name, self._ledger.accounts[name].get(device)) for name in active if name != container)
        views = [account for _, account in accounts if account is not None]
        return sum(view.limit if view.learned is None else min(view.learned, view.limit) for view in views)

    def _check_places(self) -> None:
        """A container with a choice has accounts where it is placed, and a place while it has a process or a charge."""
        busy = {process.container for process in self.processes.values()}
        for name, terms in self.terms.items():
            if terms.choice is None:
                continue
            placement, accounts = self.machine.placement(name), self._ledger.accounts[name]
            assert accounts.keys() == (set(placement.devices) if placement else set())
            is_charged = any(account.charged for account in accounts.values())
            if not self.machine.recovering:
                has_left = any(self.machine._state.left_by_ended(name, device) for device in accounts)
                stays = name not in self.displaced_places and (name in busy or is_charged or has_left)
                assert (placement is not None) == stays, f"{name}: {placement}"
            else:
                assert placement is not None or name not in busy or name in self.displaced_places
            assert self.placements.get(name) == placement

    def check(self) -> None:
        """Check the machine's own invariants, and its ledger against what processes and driver hold."""
        self.machine.check_invariants(self.now)
        self._check_places()
        ledger = self._ledger
        for device, capacity in ledger.capacity.items():
            used = sum(process.used[device] for process in self.processes.values())
            assert used <= capacity + max(-ledger.free[device], 0)
            assert self.machine.settling(device) == sum(used[device] for used in self.unsettled.values())
        for session, process in self.processes.items():
            for device, account in ledger.accounts[process.container].items():
                assert account.leases.get(session, 0) == process.used[device] + process.headroom[device]
        accounts = [account for accounts in ledger.accounts.values() for account in accounts.values()]
        if any(account.target is not None and account.target > account.limit for account in accounts):
            idle = [process for process in self.processes.values() if any(process.headroom.values())]
            assert not idle, f"a limit waits for memory that nobody uses: {idle}"
        containers = self.machine._state.containers.values()
        doubted = {one.event.request for container in containers for one in container.doubted.values()}
        waiting = {request.request for request in self.machine.waiting}
        assert waiting | doubted == self.pending.keys()
        assert not waiting & doubted
        assert self.machine.explain(self.now).keys() == waiting
