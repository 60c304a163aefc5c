"""How close learned requests come to what jobs need, and whether one fails by them: the controller's own decisions.

Slurm is imitated. Kinds of work run again and again, ask for 1.2 to 4 times their peak, and their peaks vary from run
to run; one run in a hundred needs a third more. A job whose share is smaller than its need fails. Once with shards of a
GiB, the default, and once with a finer granule.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from _report import Figure, at_least, at_most, report

from convgpu.cluster.controller.controller import Controller, Step
from convgpu.cluster.controller.levels import Levels
from convgpu.cluster.controller.rows import Row
from convgpu.cluster.listing import Job, Number
from convgpu.cluster.shares import shards_for
from convgpu.ranking import geometric_levels

GIB = 1 << 30
GRANULES = (GIB, GIB // 2, GIB // 4)
CARD = 80  # GiB
KINDS, RUNS, LEAST = 200, 20, 3
VARIES = (0.01, 0.03, 0.05)  # standard deviation of a kind's peaks, as a share
JUMPS, JUMP = 0.01, 4 / 3
LARGE = 7  # GiB from which on a tenth more, in whole GiB, is at most a quarter more
SECONDS = 600.0


@dataclass(slots=True)
class Run:
    """One job: what its user asked for, what it needs, and what it asked for when it started, in GiB."""

    kind: int
    number: int
    asked: int
    need: float
    had: float = 0
    failures: int = 0
    ended: bool = False


def runs(rng: random.Random) -> Iterator[Run]:
    """Return the runs of all kinds, in their order."""
    for kind in range(KINDS):
        peak = 2.0 * (CARD / 2 / 1.5) ** rng.random()
        asked = min(CARD, shards_for(int(peak * rng.uniform(1.2, 4) * GIB), GIB))
        varies = rng.choice(VARIES)
        for number in range(RUNS):
            need = peak * max(rng.gauss(1, varies), 0.5) * (JUMP if rng.random() < JUMPS else 1)
            yield Run(kind, number, asked, min(need, asked * 0.99))


class Imitation:
    """Slurm with one job at a time: it waits, is corrected, runs, and ends or fails."""

    def __init__(self, granule: int) -> None:
        self.each = GIB // granule  # shards of a GiB
        self.controller = Controller(Levels(geometric_levels(3250.0, 4.0, 8)), granule, CARD * self.each)
        self.now = 1e9

    def step(self, job: int, state: str, started: float | None = None, peak: int | None = None) -> Step:
        """Let the controller look at the job."""
        over = state in {"completed", "failed"}
        row = Row(job, state, started, self.now if over else None, "n1")
        return self.controller.step([row], self.now, {job: peak} if peak is not None else {})

    def play(self, job: int, run: Run) -> None:
        """Play one job to its end, with what Slurm would be told."""
        share, comment = f"gres/shard:{run.asked * self.each}", f"convgpu kind={run.kind:016x}"
        self.controller.add([Job(job, "x", "u", tasks=Number(1, set=True), tres_per_task=share, comment=comment)])
        run.had = self._asked(self.step(job, "pending"), run.asked)
        while not run.ended:
            started, self.now = self.now, self.now + SECONDS
            self.step(job, "running", started)
            fits = run.need <= run.had
            peak = int(min(run.need, run.had) * GIB)
            step = self.step(job, "completed" if fits else "failed", started, peak)
            again = any(update.requeue for update in step.updates)
            run.failures += not fits
            run.ended = fits or not again
            self.now += 1
            if not run.ended:
                run.had = self._asked(step, run.had)
                self.step(job, "pending")

    def _asked(self, step: Step, before: float) -> float:
        """Return the GiB that the job asks for."""
        words = (word for update in step.updates for word in update.words)
        shards = [int(word.rpartition(":")[2]) for word in words if word.startswith("trespertask=")]
        return shards[-1] / self.each if shards else before


def before(played: list[Run], run: Run) -> list[Run]:
    """Return the run and the earlier ones of its kind."""
    first = run.kind * RUNS
    return played[first : first + run.number + 1]


def figures(granule: int) -> list[Figure]:
    """Play all runs, and judge those behind the third of each kind."""
    slurm = Imitation(granule)
    played = list(runs(random.Random(1)))  # noqa: S311 - the same each time
    for job, run in enumerate(played, 1):
        slurm.play(job, run)
    later = [run for run in played if run.number >= LEAST]
    lost = sum(run.failures > 0 and run.had < run.asked for run in played)
    highest = [max(other.need for other in before(played, run)) for run in later]
    close = [run.had <= 1.25 * peak for run, peak in zip(later, highest, strict=True)]
    large = [is_close for is_close, peak in zip(close, highest, strict=True) if peak >= LARGE]
    asked = sum(run.asked for run in later)
    return [
        Figure("granule", granule >> 20, "MiB"),
        Figure("jobs", len(played), ""),
        at_least("at most 1.25 x the kind's highest peak, after 3 runs", 100 * sum(close) / len(close), "%", 90),
        at_least("the same of peaks from 7 GiB on", 100 * sum(large) / len(large), "%", 90),
        Figure("memory asked for by users, against peaks", asked / sum(run.need for run in later), ""),
        Figure("memory asked for after correction", sum(run.had for run in later) / sum(r.need for r in later), ""),
        at_most("jobs that failed by a learned request for good", lost, "", 0),
        Figure("jobs queued again with what their user asked", sum(run.failures > 0 for run in played), ""),
    ]


def main() -> None:
    """Play with each granule."""
    report("learned-memory", [figure for granule in GRANULES for figure in figures(granule)])


if __name__ == "__main__":
    main()
