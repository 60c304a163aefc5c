"""What the controller of a cluster costs at 1,000 jobs: a cycle from the text of `squeue` to the words for Slurm.

Slurm is imitated: of all jobs those with the highest factors have the cards. Asking it and telling it is not counted.
"""

import random
import time
from collections import Counter

from _report import at_most, percentile, report

from convgpu.cluster.controller.controller import Controller, Step
from convgpu.cluster.controller.levels import Levels
from convgpu.cluster.controller.rows import read_rows
from convgpu.cluster.listing import Job, Number
from convgpu.ranking import geometric_levels

ALIVE, RUNNING, CYCLES, INTERVAL = 1000, 320, 720, 5.0
GIB = 1 << 30


class Imitation:
    """Slurm's jobs: who waits, who runs since when, and how much each still needs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - nothing secret
        self.left: dict[int, float] = {}
        self.started: dict[int, float] = {}
        self.factors: dict[int, int] = {}
        self.updates: Counter[int] = Counter()
        self._next = 1

    def fill(self) -> None:
        """Submit jobs until there are enough; few take most of the time."""
        while len(self.left) < ALIVE:
            self.left[self._next] = self._random.paretovariate(1.1) * 60
            self._next += 1

    def text(self) -> str:
        """Return what `squeue` would print."""
        rows = []
        for job in self.left:
            at = self.started.get(job)
            rows.append(f"{job}|{'PENDING' if at is None else 'RUNNING'}|{'N/A' if at is None else int(at)}|N/A|")
        return "\n".join(rows)

    def obey(self, step: Step, now: float) -> None:
        """Take the new factors, run who has the highest, and end who is done."""
        for update in step.updates:
            self.updates.update(update.jobs)
            if update.factor is not None:
                self.factors.update(dict.fromkeys(update.jobs, update.factor))
        best = sorted(self.left, key=lambda job: (-self.factors.get(job, 0), job))[:RUNNING]
        self.started = {job: self.started.get(job, now) for job in best}
        for job in best:
            self.left[job] -= INTERVAL
            if self.left[job] <= 0:
                del self.left[job], self.started[job]


def main() -> None:
    """Turn for an hour of virtual time, with new jobs for those that end."""
    slurm, taken = Imitation(1), []
    controller = Controller(Levels(geometric_levels(3250.0, 4.0, 8)), GIB, 16)
    for cycle in range(CYCLES):
        now = 1e9 + cycle * INTERVAL
        slurm.fill()
        text = slurm.text()
        begin = time.process_time()
        rows = read_rows(text)
        new = controller.unknown(rows)
        taken.append(time.process_time() - begin)
        controller.add(
            Job(job, "x", "u", tasks=Number(1, set=True), tres_per_task="gres/shard:8", command="/t.sh") for job in new
        )
        begin = time.process_time()
        step = controller.step(rows, now, {})
        for update in step.updates:
            for job in update.jobs:
                controller.took(job, update)
        taken[-1] += time.process_time() - begin
        slurm.obey(step, now)
    report(
        "controller",
        [
            at_most("a cycle with 1,000 jobs, p99, without Slurm's own", percentile(taken, 99) * 1000, "ms", 100),
            at_most("processor at one cycle each 5 s", 100 * sum(taken) / CYCLES / INTERVAL, "%", 2),
            at_most("updates of a job, the most", max(slurm.updates.values()), "", 10),
        ],
    )


if __name__ == "__main__":
    main()
