"""Sharing by ConvGPU: the scheduler's own machine decides."""

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import make_policy
from convgpu.simulate.engine import Scheme
from convgpu.simulate.host import SimulatedHost
from convgpu.simulate.workload import Job, capacities


class Managed(Scheme):
    """Each job is a container with one process, and its allocations may be paused.

    Args:
        policy: its name.
        seed: of a policy that chooses at random.
        starvation_timeout: seconds after which a waiting allocation is not overtaken any more.
        second_programs: each container ran another program before, which used its whole limit.
    """

    def __init__(self, policy: str, seed: int, starvation_timeout: float, *, second_programs: bool = False) -> None:
        self.host = SimulatedHost(Machine(capacities(), make_policy(policy, seed), starvation_timeout))
        self._sessions: dict[int, int] = {}
        self._waiting: dict[int, Job] = {}
        self._second_programs = second_programs

    def begin(self, job: Job) -> None:
        """Create the container and start its process."""
        self.host.now = self.simulation.now
        if not self.host.terms and self._second_programs:
            self._run_first_programs()
        if not self._second_programs:
            self.host.create(str(job.number), {job.device: job.limit}, priority=job.priority)
        self._sessions[job.number] = self.host.start(str(job.number))
        super().begin(job)

    def _run_first_programs(self) -> None:
        """Run a program in each container, one after the other, before anything else."""
        for job in self.simulation.jobs:
            self.host.create(str(job.number), {job.device: job.limit}, priority=job.priority)
            session = self.host.start(str(job.number))
            self.host.allocate(session, job.limit, job.device)
            self.host.end(session)

    def allocate(self, job: Job, size: int) -> None:
        """Allocate as the hook does: from the headroom, or by a request."""
        self.host.now = self.simulation.now
        request = self.host.allocate(self._sessions[job.number], size, job.device)
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
