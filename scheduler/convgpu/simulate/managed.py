"""Sharing by ConvGPU: the scheduler's own machine decides."""

from collections.abc import Mapping
from typing import Final

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.placement import Choice
from convgpu.policies.memory import make_policy
from convgpu.policies.placement import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from convgpu.simulate.engine import Scheme
from convgpu.simulate.host import SimulatedHost
from convgpu.simulate.workload import Job, capacities

EVERY_DEVICE: Final = "every device"


class Managed(Scheme):
    """Each job is a container with one process, and its allocations may be paused.

    Args:
        policy: its name.
        seed: of a policy that chooses at random.
        starvation_timeout: seconds after which a waiting allocation is not overtaken any more.
        second_programs: each container ran another program before, which used its whole limit.
        placement: name of the policy that chooses each job's device; empty: the job's own; EVERY_DEVICE: the job's own,
            and its limit claims all the others as well.
        capacity: bytes of each device.
        is_whole: each container is admitted with its whole limit or not at all.
    """

    def __init__(
        self,
        policy: str,
        seed: int,
        starvation_timeout: float,
        *,
        second_programs: bool = False,
        placement: str = "",
        capacity: Mapping[str, int] | None = None,
        is_whole: bool = False,
    ) -> None:
        self._capacity = capacity or capacities()
        self._placement = placement
        self._is_whole = is_whole
        chooser = placement if placement in PLACEMENT_POLICIES else DEFAULT_PLACEMENT
        machine = Machine(self._capacity, make_policy(policy, seed), starvation_timeout, placement=chooser)
        self.host = SimulatedHost(machine)
        self._sessions: dict[int, int] = {}
        self._waiting: dict[int, Job] = {}
        self._second_programs = second_programs

    def begin(self, job: Job) -> None:
        """Create the container and start its process."""
        self.host.now = self.simulation.now
        if not self.host.terms and self._second_programs:
            self._run_first_programs()
        if not self._second_programs:
            self._create(job)
        self._sessions[job.number] = self.host.start(str(job.number))
        if (placement := self.host.placements.get(str(job.number))) is not None:
            [job.device] = placement.devices
        super().begin(job)

    def _create(self, job: Job) -> None:
        limits, choice = {job.device: job.limit}, None
        if self._placement:
            limits = {device: job.limit for device, size in self._capacity.items() if job.limit <= size}
            choice = None if self._placement == EVERY_DEVICE else Choice()
        self.host.create(str(job.number), limits, priority=job.priority, choice=choice, is_whole=self._is_whole)

    def _run_first_programs(self) -> None:
        """Run a program in each container, one after the other, before anything else."""
        for job in self.simulation.jobs:
            self._create(job)
            session = self.host.start(str(job.number))
            self.host.allocate(session, job.limit, job.device)
            self.host.end(session)

    def allocate(self, job: Job, size: int) -> None:
        """Allocate as the hook does: from the headroom, or by a request."""
        self.host.now = self.simulation.now
        is_context = job.phases[job.phase].is_context
        request = self.host.allocate(self._sessions[job.number], size, job.device, is_context=is_context)
        if request:
            self._waiting[request] = job
            self._pass_answers_on()
        else:
            self.simulation.grant(job)

    def end(self, job: Job) -> None:
        """End the process and remove the container."""
        self.host.now = self.simulation.now
        self.host.remove(str(job.number))
        self._pass_answers_on()

    def idle_bytes(self) -> dict[str, int]:
        """Bytes held by paused jobs, and free bytes that would fit a waiting allocation and are withheld from it."""
        smallest: dict[str, int] = {}
        for job in self._waiting.values():
            size = job.phases[job.phase].size
            smallest[job.device] = min(size, smallest.get(job.device, size))
        free = {device: self.host.machine.device(device).free for device in smallest}
        withheld = [size for device, size in free.items() if smallest[device] <= size]
        return {"paused": sum(job.held for job in self._waiting.values()), "unsafe": sum(withheld)}

    def _pass_answers_on(self) -> None:
        for request in [request for request in self._waiting if request in self.host.answers]:
            answer = self.host.answers[request]
            if not isinstance(answer, e.Accept):
                raise TypeError(f"an allocation within its limit was not accepted: {answer}")
            self.simulation.grant(self._waiting.pop(request))
