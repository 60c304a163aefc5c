"""Decisions of the pure machine with 1,000 containers, waiting and running, on one device and on eight."""

import random
import statistics
import time
from collections.abc import Callable

from _report import Figure, at_most, percentile, report

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.step import Step
from convgpu.policies.memory import POLICIES, make_policy
from convgpu.simulate.host import SimulatedHost

CONTAINERS, STEPS = 1000, 3000
GIB = 1 << 30
CAPACITY = 140 * GIB

Limits = Callable[[random.Random], dict[str, int]]


class Timed(Machine):
    """Measures the processor time of each decision, which other programs on the machine do not change much."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.seconds: list[float] = []

    def handle(self, event: e.Event, now: float) -> Step:
        """Handle the event, and keep the seconds that it took."""
        start = time.thread_time()
        step = super().handle(event, now)
        self.seconds.append(time.thread_time() - start)
        return step


def limits_on(devices: int, most: int) -> Limits:
    """Return what draws the limits of a container: the same size on up to `most` of the devices."""

    def draw_limits(draw: random.Random) -> dict[str, int]:
        chosen = draw.sample(range(devices), draw.randint(1, most))
        return dict.fromkeys((f"g{number}" for number in sorted(chosen)), draw.randrange(1, 40) * GIB)

    return draw_limits


def play(policy: str, devices: int, limits: Limits) -> Timed:
    """Let containers allocate parts of their limits, end, and be followed by others; always 1,000 at a time."""
    draw = random.Random(1)  # noqa: S311 - a workload, not a secret
    machine = Timed({f"g{number}": CAPACITY for number in range(devices)}, make_policy(policy, seed=1), 60.0)
    host = SimulatedHost(machine)
    for number in range(CONTAINERS):
        host.create(f"c{number}", limits(draw))
        host.start(f"c{number}")
    machine.seconds.clear()
    for step in range(STEPS):
        session = draw.choice(list(host.processes))
        if any(request.session == session for request in host.pending.values()):
            continue
        device, account = draw.choice(list(machine.accounts(host.processes[session].container).items()))
        host.allocate(session, draw.randrange(GIB // 2, account.limit + 1), device)
        running = [process for process in host.processes.values() if any(process.used.values())]
        if running and draw.random() < 0.5:
            host.finish(draw.choice(running).container)
            host.create(f"d{step}", limits(draw))
            host.start(f"d{step}")
        host.now += 0.1
    return machine


def time_explanations(machine: Machine) -> float:
    """Return the milliseconds that `Machine.explain` takes for all waiting allocations."""
    taken = []
    for _ in range(5):
        start = time.thread_time()
        waits = machine.explain(1000.0)
        taken.append(time.thread_time() - start)
    assert len(waits) == len(machine.waiting)
    return statistics.median(taken) * 1e3


def main() -> None:
    """Each policy over the same workloads."""
    figures = []
    loads = {"1 device": (1, 1), "8 devices, one each": (8, 1), "8 devices, up to 8 each": (8, 8)}
    for name, (devices, most) in loads.items():
        for policy in sorted(POLICIES):
            machine = play(policy, devices, limits_on(devices, most))
            taken = [seconds * 1e3 for seconds in machine.seconds]
            what = f"{name}, {policy}"
            figures += [
                Figure(f"{what}: decisions in a second of one core", 1e3 / statistics.fmean(taken), "/s"),
                at_most(f"{what}: a decision, p99", percentile(taken, 99), "ms", 1),
            ]
        waiting = len(machine.waiting)
        figures.append(Figure(f"{name}: explain {waiting} waiting allocations", time_explanations(machine), "ms"))
    report("decisions", figures)


if __name__ == "__main__":
    main()
