"""Plays everything around the machine: processes with their headroom words, and the driver's memory.

What a process really uses is counted here, apart from the ledger, so that the tests compare two books.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convgpu.core import events as e
from convgpu.core.machine import Machine

FACTS = (e.SessionStarted, e.CapacityChanged, e.Overuse)


@dataclass
class Process:
    container: str
    headroom: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    used: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wanted: dict[str, bool] = field(default_factory=lambda: defaultdict(bool))


class World:
    """`after_look`: called after headroom was taken, before the machine hears of it, as another thread may run.

    Args:
        judging: look after each event whether it made worse what only facts may. Benchmarks do not.
    """

    def __init__(self, machine: Machine, *, judging: bool = True) -> None:
        self.machine = machine
        self.judging = judging
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.open: dict[int, e.AllocationAsked] = {}
        self.answers: dict[int, e.Accept | e.Reject] = {}
        self.history: list[e.Happened] = []
        self.limits: list[e.LimitInForce] = []
        self.after_look: Callable[[], None] = lambda: None
        self._numbers = 0

    def happen(self, event: e.Event) -> None:
        """Let an event happen and carry out its effects as the daemon does. Only facts may break rules."""
        before = self.excess() if self.judging else Counter()
        self._pass_on(event)
        if self.judging and not isinstance(event, FACTS):
            assert not self.excess() - before, f"{event} made it worse: {before} -> {self.excess()}"

    def _pass_on(self, event: e.Event) -> None:
        for effect in self.machine.handle(event, self.now):
            self._perform(effect)

    def excess(self) -> Counter[str]:
        """Bytes that facts took against the rules: beyond capacity, beyond a limit, and of the debt of safety."""
        ledger = self.machine.ledger
        excess = Counter({device: max(-free, 0) for device, free in ledger.free.items()})
        for name, accounts in ledger.accounts.items():
            excess.update({f"{name} on {d}": max(one.grant - one.limit, 0) for d, one in accounts.items()})
        excess["debt"] = sum(ledger.debt.values())
        return excess

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Accept(session, request, size, _):
                asked = self.open.pop(request)
                self.processes[session].used[asked.device] += size
                self.answers[request] = effect
            case e.Reject(_, request, _):
                del self.open[request]
                self.answers[request] = effect
            case e.Lease(session, device, size):
                self.processes[session].headroom[device] += size
            case e.Want(session, device, wanted):
                self.processes[session].wanted[device] = wanted
            case e.TakeHeadroom(words):
                taken = {}
                for session, device in words:
                    taken[session, device] = self.processes[session].headroom[device]
                    self.processes[session].headroom[device] = 0
                self.after_look()
                self._pass_on(e.HeadroomTaken(taken))
            case e.LimitInForce():
                self.limits.append(effect)
            case e.Happened():
                self.history.append(effect)

    # -- what containers and processes do -----------------------------------------------------------------

    def create(self, name: str, limits: Mapping[str, int], wait: float | None = None, priority: int = 0) -> None:
        self.happen(e.ContainerCreated(name, limits, wait, priority))
        self.happen(e.ContainerStarted(name))

    def start(self, container: str, held: Mapping[str, int] | None = None) -> int:
        self._numbers += 1
        self.processes[self._numbers] = Process(container)
        self.processes[self._numbers].used.update(held or {})
        self.happen(e.SessionStarted(self._numbers, container, held or {}))
        return self._numbers

    def resume(self, former: int, held: Mapping[str, int]) -> int:
        """The process has another connection; it says what it uses, and a new page begins without headroom."""
        self._numbers += 1
        old = self.processes.pop(former)
        self.open = {number: asked for number, asked in self.open.items() if asked.session != former}
        self.processes[self._numbers] = Process(old.container)
        self.processes[self._numbers].used.update(held)
        self.happen(e.SessionResumed(self._numbers, former, held))
        return self._numbers

    def allocate(self, session: int, size: int, device: str = "gpu") -> int:
        """As the hook: from the headroom, or by asking. Returns the number of the request, 0 without one."""
        process = self.processes[session]
        if process.headroom[device] >= size:
            process.headroom[device] -= size
            process.used[device] += size
            return 0
        self._numbers += 1
        asked = e.AllocationAsked(session, self._numbers, device, size)
        self.open[self._numbers] = asked
        self.happen(asked)
        return asked.request

    def free(self, session: int, size: int, device: str = "gpu") -> None:
        process = self.processes[session]
        process.used[device] -= size
        process.headroom[device] += size
        if process.wanted[device]:
            process.wanted[device] = False
            self.happen(e.MemoryFreed(session, device))

    def end(self, session: int) -> None:
        process = self.processes.pop(session)
        self.open = {number: asked for number, asked in self.open.items() if asked.session != session}
        self.happen(e.SessionEnded(session, dict(process.headroom)))
        self.happen(e.SettlingEnded(session))

    def finish(self, container: str) -> None:
        for session in [s for s, process in self.processes.items() if process.container == container]:
            self.end(session)
        self.happen(e.ContainerEnded(container))

    # -- what must be true ---------------------------------------------------------------------------------

    def check(self) -> None:
        self.machine.check_invariants(self.now)
        ledger = self.machine.ledger
        for device, capacity in ledger.capacity.items():
            used = sum(process.used[device] for process in self.processes.values())
            assert used <= capacity + max(-ledger.free[device], 0)
        for session, process in self.processes.items():
            for device, account in ledger.accounts[process.container].items():
                assert account.leases[session] == process.used[device] + process.headroom[device]
        assert len(self.machine.waiting) == len(self.open)
