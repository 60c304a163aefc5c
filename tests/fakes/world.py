"""Plays everything around the machine: processes with their headroom words, and the driver's memory.

What a process really uses is counted here, apart from the ledger, so that the tests compare two books.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Waiting

FACTS = (e.SessionStarted, e.CapacityChanged, e.UnleasedMemory)


@dataclass
class Process:
    container: str
    headroom: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    used: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wanted: dict[str, bool] = field(default_factory=lambda: defaultdict(bool))


class World:
    """`after_look`: called after headroom was taken, before the machine hears of it, as another thread may run.

    Args:
        judging: look after each event whether it broke a rule. Benchmarks do not.
    """

    def __init__(self, machine: Machine, *, judging: bool = True) -> None:
        self.machine = machine
        self.judging = judging
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.lost: list[Process] = []  # they live, and look for the next scheduler
        self.absent: dict[int, Process] = {}  # as they are; by the session that was opened for a guess
        self.terms: dict[str, tuple[float | None, int]] = {}  # of each container: wait, priority
        self.mounted: set[str] = set()
        self.unsettled: dict[int, dict[str, int]] = {}  # sessions that ended, and what the driver has not freed yet
        self.open: dict[int, e.AllocationRequested] = {}
        self.answers: dict[int, e.Accept | e.Reject] = {}
        self.history: list[e.HistoryEntry] = []
        self.limits: list[e.LimitInForce] = []
        self.after_look: Callable[[], None] = lambda: None
        self._numbers = 0
        self._newcomers: set[str] = set()  # containers that held nothing when the event came
        self._before: list[Waiting] = []  # what waited then
        self._had: dict[tuple[str, str], tuple[int, int]] = {}  # by container and device: grant and peak then

    def dispatch(self, event: e.Event) -> None:
        """Let an event happen and carry out its effects as the daemon does."""
        if not self.judging:
            self._pass_on(event)
            return
        before = self.excess()
        self._newcomers = set(self.machine.ledger.accounts) - set(self.machine.ledger.holders)
        self._before = self.machine.waiting
        self._had = {
            (name, device): (account.grant, account.high_water_mark)
            for name, accounts in self.machine.ledger.accounts.items()
            for device, account in accounts.items()
        }
        self._pass_on(event)
        after = self.excess()
        if any(before[device] for device in self.machine.ledger.free):
            del after["deficit"]  # what is given back covers the overcommit first, and helps nobody to end
        if not (isinstance(event, FACTS) or (isinstance(event, e.SessionReconnected) and event.late)):
            assert not after - before, f"{event} made it worse: {before} -> {after}"

    def _pass_on(self, event: e.Event) -> None:
        step = self.machine.handle(event, self.now)
        for effect in step.effects:
            self._perform(effect)
        if step.needs is not None:
            self._pass_on(self._take_headroom(step.needs))

    def _take_headroom(self, question: e.TakeHeadroom) -> e.HeadroomTaken:
        taken = []
        for session, device in question.slots:
            taken.append(((session, device), self.processes[session].headroom[device]))
            self.processes[session].headroom[device] = 0
        self.after_look()
        return e.HeadroomTaken(tuple(taken))

    def excess(self) -> Counter[str]:
        """Bytes that facts took against the rules: beyond capacity, beyond a limit, and the safety deficit."""
        ledger = self.machine.ledger
        excess = Counter({device: max(-free, 0) for device, free in ledger.free.items()})
        for name, accounts in ledger.accounts.items():
            above = {f"{name} on {d}": max(one.grant + one.charged - one.limit, 0) for d, one in accounts.items()}
            excess.update(above)
        excess["deficit"] = sum(ledger.deficit.values())
        excess["nominal deficit"] = sum(ledger.nominal_deficit.values())
        return excess

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Accept():
                self._accept(effect)
            case e.Reject(_, request, _):
                del self.open[request]
                self.answers[request] = effect
            case e.Lease(session, device, size):
                self.processes[session].headroom[device] += size
            case e.NotifyOnFree(session, device, wanted):
                self.processes[session].wanted[device] = wanted
            case e.LimitInForce():
                self.limits.append(effect)
            case e.HistoryEntry():
                self.history.append(effect)

    def _accept(self, effect: e.Accept) -> None:
        asked = self.open.pop(effect.request)
        process = self.processes[effect.session]
        process.used[asked.device] += effect.size
        self.answers[effect.request] = effect
        if self.judging:
            # A waiter calls the driver at once only if nothing is settling.
            assert effect.settling == sum(used[asked.device] for used in self.unsettled.values())
            self._judge_overtaking(process.container, asked)
            self._judge_age(process.container, asked)
            self._newcomers.discard(process.container)

    def _judge_overtaking(self, container: str, asked: e.AllocationRequested) -> None:
        """Newcomers, who hold nothing, are not served before an overdue one, unless that waits for memory outside.

        That is so on its device; after twice that time, for whoever has a limit there, on all (invariant 5).
        """
        ledger = self.machine.ledger
        if container not in self._newcomers:
            return
        for one in self._before:
            if one.request == asked.request:
                return
            if one.request not in self.open or one.device in self.machine.drained:
                continue
            times = 1 if one.device == asked.device else 2
            concerned = (
                one.device in ledger.accounts[container]
                and self.now - one.since >= times * self.machine.starvation_timeout
            )
            outside = ledger.accounts[one.container][one.device].leased + one.size > ledger.usable[one.device]
            assert outside or not concerned, f"{asked} is served before {one}"

    def _judge_age(self, container: str, asked: e.AllocationRequested) -> None:
        """Who takes again what it freed, or is not overdue, is not served where an overdue one could be (invariant 5).

        An advance may be, and who has to stand back itself is judged as a newcomer.
        """
        machine = self.machine
        used = sum(one.used[asked.device] for one in self.processes.values() if one.container == container)
        grant, peak = self._had.get((container, asked.device), (0, 0))
        holder = container not in self._newcomers
        self._had[container, asked.device] = (grant, max(peak, used))
        if used <= grant or (holder and used > peak) or asked.device in machine.drained or machine.recovering:
            return
        overdue = [one for one in self._before if self.now - one.since >= machine.starvation_timeout]
        mine = [(not holder, one.sequence) for one in overdue if one.request == asked.request]
        open_still = {one.request for one in machine.waiting}
        for one in overdue:
            # Who gave all back in this very event is a newcomer, and so was then who has been served after this one.
            holds = one.container in machine.ledger.holding and one.container not in self._newcomers
            if one.request not in open_still or one.device != asked.device or [] < mine < [(not holds, one.sequence)]:
                continue
            if one is overdue[0] or holds:
                machine.ledger.grant(container, asked.device, -asked.size)
                passed_over = machine.ledger.is_safe_to_grant(one.container, one.device, one.size)
                machine.ledger.grant(container, asked.device, asked.size)
                assert not passed_over, f"{asked} is served although {one} could be"

    # -- what containers and processes do -----------------------------------------------------------------

    def create(self, name: str, limits: Mapping[str, int], wait: float | None = None, priority: int = 0) -> None:
        self.terms[name] = (wait, priority)
        self.dispatch(e.ContainerCreated(name, limits, wait, priority))
        self.mount(name)

    def mount(self, name: str) -> None:
        self.mounted.add(name)
        self.dispatch(e.ContainerStarted(name))

    def start(self, container: str, held: Mapping[str, int] | None = None) -> int:
        return self._connect(Process(container, used=defaultdict(int, held or {})))

    def _connect(self, process: Process) -> int:
        self._numbers += 1
        self.processes[self._numbers] = process
        self.dispatch(e.SessionStarted(self._numbers, process.container, dict(process.used)))
        return self._numbers

    def resume(self, former: int, held: Mapping[str, int], *, late: bool = False) -> int:
        """The process has another connection; it says what it uses, and a new page begins without headroom."""
        self._numbers += 1
        old = self.processes.pop(former)
        self.open = {number: asked for number, asked in self.open.items() if asked.session != former}
        self.processes[self._numbers] = Process(old.container)
        self.processes[self._numbers].used.update(held)
        self.dispatch(e.SessionReconnected(self._numbers, former, held, late))
        return self._numbers

    def allocate(self, session: int, size: int, device: str = "gpu") -> int:
        """As the hook: from the headroom, or by asking. Returns the number of the request, 0 without one."""
        process = self.processes[session]
        if process.headroom[device] >= size:
            process.headroom[device] -= size
            process.used[device] += size
            return 0
        self._numbers += 1
        asked = e.AllocationRequested(session, self._numbers, device, size)
        self.open[self._numbers] = asked
        self.dispatch(asked)
        return asked.request

    def free(self, session: int, size: int, device: str = "gpu") -> None:
        process = self.processes[session]
        process.used[device] -= size
        process.headroom[device] += size
        if process.wanted[device]:
            process.wanted[device] = False
            self.dispatch(e.MemoryFreed(session, device))

    def end(self, session: int, *, settled: bool = True) -> None:
        """The process ends; the driver frees its memory at once, or with `settle`."""
        process = self.processes.pop(session)
        self.absent.pop(session, None)
        self.open = {number: asked for number, asked in self.open.items() if asked.session != session}
        self.unsettled[session] = process.used
        self.dispatch(e.SessionEnded(session, dict(process.headroom)))
        if settled:
            self.settle(session)

    def settle(self, session: int) -> None:
        del self.unsettled[session]
        self.dispatch(e.SettlingEnded(session))

    def finish(self, container: str) -> None:
        self.lost = [process for process in self.lost if process.container != container]
        for session in [s for s, process in self.processes.items() if process.container == container]:
            self.end(session)
        self.unmount(container)

    def unmount(self, name: str) -> None:
        self.mounted.discard(name)
        self.dispatch(e.ContainerEnded(name))

    def remove(self, name: str) -> None:
        self.finish(name)
        del self.terms[name]
        self.dispatch(e.ContainerRemoved(name))

    # -- the scheduler dies -------------------------------------------------------------------------------

    def restart(self, machine: Machine) -> None:
        """Another machine takes over, with the containers and limits of the former; processes are to come back.

        It begins with what devices have without memory outside, and hears of that at once, as the daemon does it.
        """
        former, self.machine = self.machine, machine
        for device, capacity in former.ledger.capacity.items():
            self.dispatch(e.CapacityChanged(device, capacity))
        self.lost += [self.absent.get(session, process) for session, process in self.processes.items()]
        self.absent = {}
        self.processes, self.open, self.unsettled = {}, {}, {}
        for name, terms in self.terms.items():
            accounts = former.ledger.accounts[name]
            self.dispatch(e.ContainerCreated(name, {device: one.limit for device, one in accounts.items()}, *terms))
            if name in self.mounted:
                self.dispatch(e.ContainerStarted(name))
            targets = {device: account.target for device, account in accounts.items() if account.target is not None}
            self.dispatch(e.LimitsChanged(name, targets))

    def come_back(self, place: int) -> int:
        """One of the lost processes finds the scheduler. What its limit does not hold any more, the audit finds."""
        former = self.lost.pop(place)
        process = Process(former.container, used=former.used)
        number = self._connect(process)
        self._escape(number)
        return number

    def _escape(self, session: int) -> None:
        process = self.processes[session]
        for device, account in self.machine.ledger.accounts[process.container].items():
            escaped = process.used[device] - account.leases[session]
            if escaped:
                process.used[device] -= escaped
                self.dispatch(e.UnleasedMemory(process.container, device, account.charged + escaped))

    def guess(self, place: int, seen: Mapping[str, int]) -> int:
        """One of the lost processes does not come back, and the scheduler books what it believes that it holds."""
        self._numbers += 1
        former = self.lost.pop(place)
        self.absent[self._numbers] = former
        guessed = self.processes[self._numbers] = Process(former.container)
        self.dispatch(e.SessionStarted(self._numbers, former.container, seen))
        for device, account in self.machine.ledger.accounts[former.container].items():
            guessed.used[device] = account.leases[self._numbers]
        return self._numbers

    def come_back_late(self, session: int) -> int:
        """It comes back all the same, with what it really holds."""
        former = self.absent.pop(session)
        number = self.resume(session, former.used, late=True)
        self._escape(number)
        return number

    # -- what must be true ---------------------------------------------------------------------------------

    def check(self) -> None:
        self.machine.check_invariants(self.now)
        ledger = self.machine.ledger
        for device, capacity in ledger.capacity.items():
            used = sum(process.used[device] for process in self.processes.values())
            assert used <= capacity + max(-ledger.free[device], 0)
            assert self.machine.settling(device) == sum(used[device] for used in self.unsettled.values())
        for session, process in self.processes.items():
            for device, account in ledger.accounts[process.container].items():
                assert account.leases.get(session, 0) == process.used[device] + process.headroom[device]
        assert {one.request for one in self.machine.waiting} == self.open.keys()
        assert self.machine.explain(self.now).keys() == self.open.keys()
