"""A simulated host: containers, processes with their headroom, and the driver's memory, around a real machine.

The use of each process is counted here, apart from the ledger, so that the two can be compared.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.placement import Choice, Displaced, Placed, Placement, PlacementRequested
from convgpu.core.residency import events as r


@dataclass
class Process:
    """One process: per device its headroom and its use in bytes, and whether it has to report the next free."""

    container: str
    headroom: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    used: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    armed: dict[str, bool] = field(default_factory=lambda: defaultdict(bool))


class Terms(NamedTuple):
    """What a container was created with. `wait`: seconds that an allocation may be paused, None without a bound."""

    wait: float | None
    priority: int
    choice: Choice | None = None
    is_whole: bool = False
    gang: str = ""
    gang_size: int = 0

    def created(self, name: str, limits: Mapping[str, int], placed: Placement | None = None) -> e.ContainerCreated:
        """Return the event that creates a container with these terms."""
        whole = (self.is_whole, self.gang, self.gang_size)
        return e.ContainerCreated(name, limits, self.wait, self.priority, self.choice, placed, *whole)


def _no_other_thread() -> None:
    pass


class SimulatedHost:
    """Passes events to a machine and carries its effects out, as the daemon and the hooks do.

    Attributes:
        now: seconds, on the clock of the events.
        processes: by session.
        previous: processes that live and were connected to an earlier scheduler.
        adopted: by session, the true state of processes that did not reconnect and whose use the scheduler estimated.
        unsettled: by session that ended, the bytes that the driver has not freed yet.
        pending: allocations without an answer, by request.
        answers: by request.
        placements: of the containers for which devices are chosen now.
        displaced: reports of chosen devices that are lost or were drained.
        moves: effects about memory that leaves, which whoever drives this host carries out and takes away.
        looks: what the machine is to be told when it was looked; `looks_at_once`: it is told at the end of each step.
        after_take: called after headroom was taken and before the machine is told, as another thread may run then.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.previous: list[Process] = []
        self.adopted: dict[int, Process] = {}
        self.terms: dict[str, Terms] = {}
        self.mounted: set[str] = set()
        self.unsettled: dict[int, dict[str, int]] = {}
        self.pending: dict[int, e.AllocationRequested] = {}
        self.answers: dict[int, e.Accept | e.Reject] = {}
        self.placements: dict[str, Placement] = {}
        self.history: list[e.HistoryEntry] = []
        self.limit_changes: list[e.LimitInForce] = []
        self.displaced: list[Displaced] = []
        self.moves: list[r.ResidencyEffect] = []
        self.looks: list[e.AllocationLookedAt] = []
        self.looks_at_once = True
        self.after_take: Callable[[], None] = _no_other_thread
        self._last_number = 0

    # -- events and effects --------------------------------------------------------------------------------

    def dispatch(self, event: e.Event) -> None:
        """Let the machine handle an event and what follows from it."""
        self._handle(event)
        while self.looks and self.looks_at_once:
            self._handle(self.looks.pop(0))

    def tell_looked(self, place: int = 0) -> None:
        """Tell the machine that it was looked for one of the requests."""
        self.dispatch(self.looks.pop(place))

    def _handle(self, event: e.Event) -> None:
        step = self.machine.handle(event, self.now)
        for effect in step.effects:
            self._perform(effect)
        if step.needs is not None:
            self._handle(self._take_headroom(step.needs))

    def _take_headroom(self, question: e.TakeHeadroom) -> e.HeadroomTaken:
        taken = []
        for session, device in question.slots:
            taken.append(((session, device), self.processes[session].headroom[device]))
            self.processes[session].headroom[device] = 0
        self.after_take()
        return e.HeadroomTaken(tuple(taken))

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Accept():
                self._accept(effect)
            case e.Reject():
                del self.pending[effect.request]
                self.answers[effect.request] = effect
            case e.LookAt(session, request):
                self.looks.append(e.AllocationLookedAt(session, request))
            case e.Lease(session, device, size):
                self.processes[session].headroom[device] += size
            case e.NotifyOnFree(session, device, armed):
                self.processes[session].armed[device] = armed
            case e.LimitInForce():
                self.limit_changes.append(effect)
            case e.HistoryEntry():
                self.history.append(effect)
            case Displaced():
                self.displaced.append(effect)
            case Placed():
                self._place(effect)
            case _:
                self.moves.append(effect)

    def _place(self, effect: Placed) -> None:
        if effect.placement is None:
            del self.placements[effect.container]
        else:
            self.placements[effect.container] = effect.placement

    def _accept(self, effect: e.Accept) -> None:
        request = self.pending.pop(effect.request)
        self.processes[effect.session].used[request.device] += effect.size
        self.answers[effect.request] = effect

    # -- containers ----------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        limits: Mapping[str, int],
        wait: float | None = None,
        priority: int = 0,
        choice: Choice | None = None,
        *,
        is_whole: bool = False,
        gang: str = "",
    ) -> None:
        """Create a container and mount its volume; `gang`: its name, or `NAME:SIZE` as in the option of a volume."""
        gang, _, size = gang.partition(":")
        terms = self.terms[name] = Terms(wait, priority, choice, is_whole or bool(gang), gang, int(size or 0))
        self.dispatch(terms.created(name, limits))
        self.mount(name)

    def mount(self, name: str) -> None:
        """Mount a container's volume: it starts."""
        self.mounted.add(name)
        self.dispatch(e.ContainerStarted(name))

    def unmount(self, name: str) -> None:
        """Unmount a container's volume: it has ended, its processes may live on."""
        self.mounted.discard(name)
        self.dispatch(e.ContainerEnded(name))

    def finish(self, name: str) -> None:
        """End all processes of a container, then the container."""
        self.previous = [process for process in self.previous if process.container != name]
        for session in [session for session, process in self.processes.items() if process.container == name]:
            self.end(session)
        self.unmount(name)

    def remove(self, name: str) -> None:
        """End a container and remove its volume."""
        self.finish(name)
        del self.terms[name]
        self.placements.pop(name, None)
        self.dispatch(e.ContainerRemoved(name))

    # -- processes -----------------------------------------------------------------------------------------

    def start(self, container: str, held: Mapping[str, int] | None = None, visible: Sequence[str] = ()) -> int:
        """Start a process that holds so many bytes already; return its session.

        `visible`: the devices that it sees; empty when it does not say. 0: no device can be had, so it is refused.
        """
        return self._connect(Process(container, used=defaultdict(int, held or {})), visible)

    def _connect(self, process: Process, visible: Sequence[str] = ()) -> int:
        held = tuple(device for device, size in process.used.items() if size)
        if self.machine.choice(process.container) is not None:
            self.dispatch(PlacementRequested(process.container, tuple(visible), held))
            if self.machine.placement(process.container) is None:
                return 0
        session = self._next_number()
        self.processes[session] = process
        self.dispatch(e.SessionStarted(session, process.container, dict(process.used)))
        return session

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def reconnect(self, previous: int, held: Mapping[str, int], *, late: bool = False, exported: int = 0) -> int:
        """Let a process connect again and say how much it holds; its new page begins without headroom.

        Others may keep `exported` bytes of each device beside that, which its container is charged with.
        """
        session, before = self._next_number(), self.processes.pop(previous)
        process = Process(before.container, used=defaultdict(int, held))
        self._forget_requests(previous)
        self.processes[session] = process
        kept = {device: min(size, exported) for device, size in before.used.items() if exported}
        self.dispatch(e.SessionReconnected(session, previous, held, late, kept))
        return session

    def allocate(self, session: int, size: int, device: str = "gpu", *, is_context: bool = False) -> int:
        """Allocate from the headroom, or by a request. Return its number, 0 without one."""
        process = self.processes[session]
        if process.headroom[device] >= size:
            process.headroom[device] -= size
            process.used[device] += size
            return 0
        request = e.AllocationRequested(session, self._next_number(), device, size, is_context)
        self.pending[request.request] = request
        self.dispatch(request)
        return request.request

    def free(self, session: int, size: int, device: str = "gpu") -> None:
        """Free bytes into the headroom, and report it if that was asked for."""
        process = self.processes[session]
        process.used[device] -= size
        process.headroom[device] += size
        if process.armed[device]:
            process.armed[device] = False
            self.dispatch(e.MemoryFreed(session, device))

    def end(self, session: int, *, settled: bool = True, exported: int = 0) -> None:
        """End a process; the driver frees its memory at once, or with `settle`.

        Others may keep `exported` bytes of each device, which its container is charged with.
        """
        process = self.processes.pop(session)
        self.adopted.pop(session, None)
        self._forget_requests(session)
        self.unsettled[session] = process.used
        kept = {device: min(size, exported) for device, size in process.used.items() if exported}
        self.dispatch(e.SessionEnded(session, dict(process.headroom), kept))
        if settled:
            self.settle(session)

    def _forget_requests(self, session: int) -> None:
        self.pending = {number: request for number, request in self.pending.items() if request.session != session}

    def settle(self, session: int) -> None:
        """Let the driver free the memory of a process that ended."""
        del self.unsettled[session]
        self.dispatch(e.SettlingEnded(session))

    # -- the scheduler restarts ----------------------------------------------------------------------------

    def restart(self, machine: Machine) -> None:
        """Let another machine take over the containers and limits; the processes are to connect to it.

        As the daemon does, it begins with the devices' capacity without external memory, and is told of that at once.
        """
        old, before = self.machine, self.machine.snapshot()
        self.machine = machine
        for device, figures in before.devices.items():
            self.dispatch(e.CapacityChanged(device, figures.capacity))
        self.previous += [self.adopted.get(session, process) for session, process in self.processes.items()]
        self.adopted = {}
        self.processes, self.pending, self.unsettled, self.looks = {}, {}, {}, []
        for name, terms in self.terms.items():
            accounts = before.accounts[name]
            limits = {**old.offer(name), **{device: account.limit for device, account in accounts.items()}}
            self.dispatch(terms.created(name, limits, self.placements.get(name)))
            self.dispatch(e.ContainerStarted(name) if name in self.mounted else e.ContainerEnded(name))
            targets = {device: account.target for device, account in accounts.items() if account.target is not None}
            self.dispatch(e.LimitsChanged(name, targets))

    def reconnect_previous(self, place: int) -> int:
        """Let one of the previous processes connect. The audit finds the bytes that its limit does not hold."""
        previous = self.previous.pop(place)
        if (placement := self.placements.get(previous.container)) is not None:
            # What it holds elsewhere, since its container was placed anew without it, counts as external.
            previous.used = defaultdict(int, {d: size for d, size in previous.used.items() if d in placement.devices})
        session = self._connect(Process(previous.container, used=previous.used))
        if session:
            self._report_unleased(session)
        return session

    def adopt(self, place: int, seen: Mapping[str, int]) -> int:
        """Let the scheduler open a session for one of the previous processes, with an estimate of what it holds.

        0: its container has no limit anywhere now.
        """
        previous = self.previous.pop(place)
        if not self.machine.accounts(previous.container):
            return 0  # its container is placed nowhere: what it holds counts as external
        session = self._next_number()
        self.adopted[session] = previous
        estimated = self.processes[session] = Process(previous.container)
        self.dispatch(e.SessionStarted(session, previous.container, seen))
        for device, account in self.machine.accounts(previous.container).items():
            estimated.used[device] = account.leases[session]
        return session

    def reconnect_adopted(self, session: int) -> int:
        """Let an adopted process connect after all, with what it really holds."""
        previous = self.adopted.pop(session)
        new = self.reconnect(session, previous.used, late=True)
        self._report_unleased(new)
        return new

    def _report_unleased(self, session: int) -> None:
        process = self.processes[session]
        for device, account in self.machine.accounts(process.container).items():
            unleased = process.used[device] - self.machine.lease(session, device)
            if unleased:
                process.used[device] -= unleased
                self.dispatch(e.UnleasedMemory(process.container, device, account.charged + unleased))
