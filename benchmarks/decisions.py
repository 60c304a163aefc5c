"""Decisions of the pure machine with 1,000 containers on one device, waiting and running."""

import random
import statistics
import time

from _report import Figure, at_most, percentile, report
from world import World

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies import POLICIES

CONTAINERS, STEPS = 1000, 3000
GIB = 1 << 30


class Timed(Machine):
    """Notes how long each decision takes."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.seconds: list[float] = []

    def handle(self, event: e.Event, now: float) -> list[e.Effect]:
        """As the machine does."""
        start = time.perf_counter()
        effects = super().handle(event, now)
        self.seconds.append(time.perf_counter() - start)
        return effects


def play(policy: str) -> list[float]:
    """Containers ask for parts of their limits, end, and are followed by others; always 1,000 at a time."""
    draw = random.Random(1)  # noqa: S311 - a workload, not a secret
    machine = Timed({"gpu": 140 * GIB}, POLICIES[policy](draw), 60.0)
    world = World(machine, judging=False)
    for number in range(CONTAINERS):
        world.create(f"c{number}", {"gpu": draw.randrange(1, 40) * GIB})
        world.start(f"c{number}")
    machine.seconds.clear()
    for step in range(STEPS):
        session = draw.choice(list(world.processes))
        if any(asked.session == session for asked in world.open.values()):
            continue
        limit = machine.ledger.accounts[world.processes[session].container]["gpu"].limit
        world.allocate(session, draw.randrange(GIB // 2, limit + 1))
        if draw.random() < 0.5:
            running = [one for one in world.processes.values() if any(one.used.values())]
            name = draw.choice(running).container
            world.finish(name)
            world.create(f"d{step}", {"gpu": draw.randrange(1, 40) * GIB})
            world.start(f"d{step}")
        world.now += 0.1
    return [seconds * 1e3 for seconds in machine.seconds]


def main() -> None:
    """Each policy over the same workload."""
    figures = []
    for policy in sorted(POLICIES):
        taken = play(policy)
        figures += [
            Figure(f"{policy}: a decision, p50", statistics.median(taken), "ms"),
            at_most(f"{policy}: a decision, p99", percentile(taken, 99), "ms", 1),
        ]
    report("decisions", figures)


if __name__ == "__main__":
    main()
