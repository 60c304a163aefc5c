"""Sharing by ConvGPU where memory can leave: the scheduler's own machine decides, and the bus takes its time."""

from collections.abc import Callable
from typing import Final

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.simulate.engine import Scheme
from convgpu.simulate.host import SimulatedHost
from convgpu.simulate.managed import Managed
from convgpu.simulate.workload import GIB, Job, capacities

RATE: Final = 40 * GIB  # bytes per second, each way (docs/measurements.md)
DRAIN: Final = 0.05  # seconds
SLACK: Final = GIB // 2
UNBOUNDED: Final = 1 << 50


class Suspending(Managed):
    """Each job is an elastic container: while it waits, its memory may leave.

    Args:
        machine: a fresh one, for `capacities()`.
        pool: bytes of host memory for each device.

    Attributes:
        moved: bytes that went out.
        most_out: the most bytes of one device that were out at a time.
        switches: how often a container was told to stop; `preempted`: while it worked.
    """

    def __init__(self, machine: Machine, pool: int = UNBOUNDED) -> None:
        self.host = SimulatedHost(machine)
        self._sessions: dict[int, int] = {}
        self._waiting: dict[int, Job] = {}
        self._second_programs = False
        self._pool = pool
        self._jobs: dict[int, Job] = {}  # by session
        self._bus: dict[tuple[str, str], float] = {}  # by direction and device: when it has done all that it was told
        self._deadline: float | None = None
        self.moved = self.most_out = self.switches = self.preempted = 0

    def begin(self, job: Job) -> None:
        """Create the container and start its process."""
        self.host.now = self.simulation.now
        if not self.host.terms:
            for device in capacities():
                self.host.dispatch(r.PoolChanged(device, self._pool + SLACK, SLACK))
        name = str(job.number)
        self.host.create(name, {job.device: job.limit})
        self.host.dispatch(r.ElasticSet(name, {job.device: 0}))
        session = self._sessions[job.number] = self.host.start(name)
        self._jobs[session] = job
        self.host.dispatch(r.SessionAble(session, r.Mover.VMM))
        Scheme.begin(self, job)

    def allocate(self, job: Job, size: int) -> None:
        """Allocate as the hook does."""
        super().allocate(job, size)
        self._carry_out()

    def end(self, job: Job) -> None:
        """End the process and remove the container."""
        super().end(job)
        del self._jobs[self._sessions[job.number]]
        self._carry_out()

    def idle_bytes(self) -> dict[str, int]:
        """Bytes on the cards that jobs hold which wait."""
        out = sum(self.host.machine.out(device) for device in capacities())
        return {"paused": max(sum(job.held for job in self._waiting.values()) - out, 0)}

    # -- moves -------------------------------------------------------------------------------------------

    def _dispatch(self, event: e.Event) -> None:
        self.host.now = self.simulation.now
        self.host.dispatch(event)
        self._pass_answers_on()
        self._carry_out()

    def _carry_out(self) -> None:
        while self.host.moves:
            self._begin_move(self.host.moves.pop(0))
        deadline = self.host.machine.next_deadline()
        if deadline is not None and (self._deadline is None or deadline < self._deadline):
            self._deadline = deadline
            self.simulation.schedule(max(deadline, self.simulation.now), lambda: self._pass_time(deadline))

    def _pass_time(self, deadline: float) -> None:
        if deadline == self._deadline:  # else a sooner one took its place, and what is due is asked after that
            self._deadline = None
            self._dispatch(e.TimePassed())

    def _begin_move(self, move: r.ResidencyEffect) -> None:
        match move:
            case r.Stop(session, epoch):
                self.switches += 1
                self._after(DRAIN, lambda: self._stop(session, epoch))
            case r.Evict(session, _, device, size):
                self._transfer("out", device, size, lambda: self._note_out(session, device, size))
            case r.Restore(session, _, device, size):
                self._transfer("in", device, size, lambda: self._note_in(session, device, size))
            case r.Go(session):
                self._go(session)
            case r.Watch():  # no job idles
                pass
            case _:
                raise TypeError(f"nobody asked for this: {move}")

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self.simulation.schedule(self.simulation.now + seconds, action)

    def _transfer(self, way: str, device: str, size: int, done: Callable[[], None]) -> None:
        """Let bytes go over the bus: one after the other each way, both ways at once."""
        start = max(self._bus.get((way, device), 0.0), self.simulation.now)
        self._bus[way, device] = start + size / RATE
        self.simulation.schedule(self._bus[way, device], done)

    def _stop(self, session: int, epoch: int) -> None:
        job = self._jobs.get(session)
        if job is None:
            return
        was_working = job.is_working
        if was_working:
            self.simulation.halt(job)
            self.preempted += 1
        self._dispatch(r.SessionStopped(session, epoch, r.StopOutcome.DRAINED, int(was_working)))

    def _note_out(self, session: int, device: str, size: int) -> None:
        self.moved += size
        self._dispatch(r.Evicted(session, device, size))
        self.most_out = max(self.most_out, self.host.machine.out(device))

    def _note_in(self, session: int, device: str, size: int) -> None:
        self._dispatch(r.Restored(session, device, size))

    def _go(self, session: int) -> None:
        job = self._jobs.get(session)
        is_waiting = any(waiting is job for waiting in self._waiting.values())
        if job is not None and not job.is_working and not is_waiting and job.left > 0:
            self.simulation.work(job)
