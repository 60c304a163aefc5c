"""A thousand simulated containers on eight devices: what each policy makes of the same arrivals, in virtual time.

**The arrivals.** Evenly over 6,000 s, each on a device by lot, so that some devices get more than others; needs drawn
from a lognormal distribution (median 15 GiB, 4 to 80). About 80 % of all memory would be in use if nobody ever waited.
A container has a limit on one device; three models say how it allocates (`_workload.MODELS`).

**The other ways.** *Fail and try again*: who finds its device full fails, loses all its work (there is no checkpoint)
and is started again by a supervisor with back-off (5 s, doubled up to 300 s); each further start takes `restart`
seconds more (container, CUDA, loading), in which it holds nothing. *Whole limit first*: nobody starts before its
whole limit is free; the oldest that fits is next. *One at a time*: one container on each device.

**Waiting** is all the time from arrival to end that is not the work itself, done once. **Working** is memory held
while its container works, in work that is not lost; **paused** memory is held by containers that wait for more;
**unsafe** is free although somebody who waits there would fit (safety, or an older one's turn); the rest is free,
mostly where nobody waits. What programs give back in between, settling, contexts and CUDA's own time are not modelled.
"""

import json
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Callable

from _report import RESULTS, percentile
from _workload import CAPACITY, DEVICES, LARGE, MODELS, Job, Memory, Model, Simulation, capacities, draw_jobs
from rich.console import Console
from rich.table import Table
from world import World

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import POLICIES, make_policy

SEEDS = range(1, 6)
RESTARTS = (0.0, 30.0, 120.0)
TIMEOUTS = (0.0, 60.0, 600.0)
STARVATION_TIMEOUT = 60.0

Result = dict[str, float]


class Shared(Memory):
    """ConvGPU: the machine itself."""

    def __init__(self, policy: str, starvation_timeout: float = STARVATION_TIMEOUT) -> None:
        seed = random.Random(1).getrandbits(64)  # noqa: S311 - a workload, not a secret
        self.world = World(Machine(capacities(), make_policy(policy, seed), starvation_timeout), judging=False)
        self.sessions: dict[int, int] = {}
        self.waiting: dict[int, Job] = {}

    def begin(self, job: Job) -> None:
        """It is created and connects."""
        self.world.now = self.simulation.now
        self.world.create(str(job.number), {job.device: job.limit})
        self.sessions[job.number] = self.world.start(str(job.number))
        super().begin(job)

    def ask(self, job: Job, size: int) -> None:
        """The hook asks."""
        self.world.now = self.simulation.now
        request = self.world.allocate(self.sessions[job.number], size, job.device)
        if request:
            self.waiting[request] = job
            self._go_on()
        else:
            self.simulation.go_on(job)

    def end(self, job: Job) -> None:
        """Its process ends, and its volume is removed."""
        self.world.now = self.simulation.now
        self.world.remove(str(job.number))
        self._go_on()

    def split(self) -> dict[str, int]:
        """What the ledger says."""
        ledger = self.world.machine.ledger
        least: dict[str, int] = {}
        for job in self.waiting.values():
            size = job.parts[job.done][0]
            least[job.device] = min(size, least.get(job.device, size))
        fits = [free for device, free in ledger.free.items() if least.get(device, free + 1) <= free]
        return {"paused": sum(job.held for job in self.waiting.values()), "unsafe": sum(fits)}

    def _go_on(self) -> None:
        for request in [request for request in self.waiting if request in self.world.answers]:
            assert isinstance(self.world.answers[request], e.Accept)
            self.simulation.go_on(self.waiting.pop(request))


class Retried(Memory):
    """Nobody pauses: who finds too little fails, and is tried again."""

    def __init__(self) -> None:
        self.free = capacities()

    def ask(self, job: Job, size: int) -> None:
        """It gets what is free, or fails."""
        if size > self.free[job.device]:
            self.simulation.fail(job)
        else:
            self.free[job.device] -= size
            self.simulation.go_on(job)

    def end(self, job: Job) -> None:
        """What it held is free."""
        self.free[job.device] += job.held


class Admitted(Memory):
    """Nobody starts before its whole limit is free; the oldest that fits is next."""

    def __init__(self) -> None:
        self.free = capacities()
        self.queue: list[Job] = []

    def begin(self, job: Job) -> None:
        """It joins those that wait."""
        self.queue.append(job)
        self._go_on()

    def ask(self, job: Job, size: int) -> None:  # noqa: ARG002
        """It has it already."""
        self.simulation.go_on(job)

    def end(self, job: Job) -> None:
        """Its limit is free."""
        self.free[job.device] += job.limit
        self._go_on()

    def _go_on(self) -> None:
        for job in list(self.queue):
            if job.limit <= self.free[job.device]:
                self.queue.remove(job)
                self.free[job.device] -= job.limit
                super().begin(job)


class Alone(Memory):
    """One container at a time on each device, in the order of arrival."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[Job]] = defaultdict(deque)

    def begin(self, job: Job) -> None:
        """It starts when it is the first."""
        self.queues[job.device].append(job)
        if self.queues[job.device][0] is job:
            super().begin(job)

    def ask(self, job: Job, size: int) -> None:  # noqa: ARG002
        """The device is its own."""
        self.simulation.go_on(job)

    def end(self, job: Job) -> None:
        """The next one starts."""
        queue = self.queues[job.device]
        queue.popleft()
        if queue:
            super().begin(queue[0])


def measure(way: Callable[[], Memory], model: Model, restart: float = 0.0) -> Result:
    """Play one way through with each seed, and return the medians."""
    runs = []
    for seed in SEEDS:
        simulation = Simulation(draw_jobs(model, seed), way(), restart)
        simulation.run()
        makespan = max(job.end for job in simulation.jobs)
        waits = [job.wait for job in simulation.jobs]
        whole = DEVICES * CAPACITY * makespan
        runs.append(
            {
                "makespan": makespan,
                "mean wait": statistics.fmean(waits),
                "p99 wait": percentile(waits, 99),
                "longest wait": max(waits),
                "mean wait, large": statistics.fmean(job.wait for job in simulation.jobs if job.need > LARGE),
                **{share: 100 * simulation.shares[share] / whole for share in ("working", "paused", "unsafe", "lost")},
                "failures": simulation.failures,
            }
        )
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def table(title: str, rows: dict[str, Result]) -> None:
    """Print the medians."""
    columns = list(next(iter(rows.values())))
    shown = Table(title=title, title_justify="left", show_edge=False)
    shown.add_column("")
    for column in columns:
        shown.add_column(column, justify="right")
    for name, row in rows.items():
        shares = {"working", "paused", "unsafe", "lost"}
        texts = [f"{row[column]:.1f} %" if column in shares else f"{row[column]:,.0f}" for column in columns]
        shown.add_row(name, *texts)
    Console(width=140).print(shown)


def main() -> None:
    """Medians over the seeds; times in seconds, shares of all memory over the makespan."""
    results = {}
    for model in MODELS:
        rows = {name: measure(lambda name=name: Shared(name), model) for name in sorted(POLICIES)}
        for restart in RESTARTS:
            rows[f"try again, {restart:.0f} s"] = measure(Retried, model, restart)
        rows["whole limit first"] = measure(Admitted, model)
        rows["one at a time"] = measure(Alone, model)
        table(f"policies, programs allocate {model.name}", rows)
        results[model.name] = rows
    rows = {f"{seconds:g} s": measure(lambda s=seconds: Shared("best-fit", s), MODELS[0]) for seconds in TIMEOUTS}
    table(f"best-fit by starvation timeout, programs allocate {MODELS[0].name}", rows)
    results["starvation_timeout"] = rows
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "policies.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
