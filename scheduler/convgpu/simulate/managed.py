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
    """

    def __init__(self, policy: str, seed: int, starvation_timeout: float) -> None:
        self.host = SimulatedHost(Machine(capacities(), make_policy(policy, seed), starvation_timeout))
        self._sessions: dict[int, int] = {}
        self._waiting: dict[int, Job] = {}

    def begin(self, job: Job) -> None:
        """Create the container and start its process."""
        self.host.now = self.simulation.now
        self.host.create(str(job.number), {job.device: job.limit})
        self._sessions[job.number] = self.host.start(str(job.number))
        super().begin(job)

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
