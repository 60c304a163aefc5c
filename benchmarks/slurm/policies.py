"""34 jobs on a real Slurm of eight cards: least attained service by the controller against Slurm's own order.

Then the same jobs in the simulator, each lengthened by what a start costs here. That is measured first, with all cards
in use, because eight starts at once take longer than one: Prologs, Epilogs and schedulers share this machine's cores.

    policies.py [SCALE [SEEDS [FILE]]]

SCALE: seconds of a short job; a long one has 17.5 times as many. SEEDS: how many plays, for an interval; with more than
one the jobs last between half and one and a half times as long, drawn anew for each. FILE keeps each play, so that a
later run goes on there.
"""

import itertools
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from _cluster import CARD, CARDS, controller, need_cluster, run, wait_until
from _report import Figure, at_most, report

from convgpu.ranking import FirstCome, LeastAttainedService, geometric_levels
from convgpu.simulate.cluster.engine import Cluster, Scheme
from convgpu.simulate.cluster.jobs import Request
from convgpu.simulate.cluster.metrics import measure

SCALE = float(sys.argv[1]) if len(sys.argv) > 1 else 16.0
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 1
KEPT = Path(sys.argv[3]) if len(sys.argv) > 3 else None
LONG, SHORT = (10, 17.5 * SCALE), (24, SCALE)  # jobs, seconds
# With its start, which Slurm counts as service, a short job stays below.
FIRST_LEVEL = 3 * SCALE
STUDENT = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
}  # 95 %, by degrees
TURNS = 3  # of short jobs on each card, for what a start costs
MOST = 3600.0
# Steps of half a second by the clock, kept in a file, as a training with checkpoints does.
TRAIN = """\
#!/bin/bash
at=$(cat FOLDER/$SLURM_JOB_ID.at 2>/dev/null || echo 0)
begin=$(date +%s%N)
now() { echo $((at + ($(date +%s%N) - begin) / 1000000)); }
trap 'now > FOLDER/$SLURM_JOB_ID.at; exit 143' TERM
while [ $(now) -lt $1 ]; do sleep 0.5 & wait $!; done
now > FOLDER/$SLURM_JOB_ID.at
echo "$SLURM_JOB_ID $(date +%s.%N) ${SLURM_RESTART_COUNT:-0}" >> FOLDER/ended
"""


@dataclass(frozen=True)
class Round:
    """One play of all jobs: for each job when it came, how long it runs alone, how long it took; restarts."""

    jobs: list[tuple[float, float, float]]
    restarts: int
    ends: int
    updates: int = 0

    @property
    def completion(self) -> float:
        """Mean seconds from submission to end."""
        return statistics.fmean(took for _, _, took in self.jobs)

    @property
    def makespan(self) -> float:
        """Seconds from the first submission to the last end."""
        return max(came + took for came, _, took in self.jobs)


def play(folder: Path, wanted: list[float]) -> Round:
    """Submit jobs of so many seconds, one after the other, and wait for their ends."""
    folder.mkdir(exist_ok=True)
    script = folder / "train.sh"
    script.write_text(TRAIN.replace("FOLDER", str(folder)))
    script.chmod(0o755)
    came: dict[int, tuple[float, float]] = {}
    for seconds in wanted:
        words = ("--parsable", "--open-mode=append", "-o", "/dev/null", "--requeue", f"--gres=gpumem:{CARD}G")
        came[int(run("sbatch", *words, str(script), str(round(seconds * 1000))))] = time.time(), seconds
    wait_until(lambda: not run("squeue", "-h"), MOST, 2)
    rows = [line.split() for line in (folder / "ended").read_text().splitlines()]
    ends = {int(job): float(at) for job, at, _ in rows}
    first = min(at for at, _ in came.values())
    jobs = [(at - first, float(seconds), ends[job] - at) for job, (at, seconds) in came.items()]
    return Round(jobs, sum(int(restarts) for _, _, restarts in rows), len(rows))


def overhead(folder: Path) -> float:
    """Return the seconds that a start costs on cards that are all in use: short jobs, TURNS on each card."""
    return play(folder / "starts", [SCALE] * CARDS * TURNS).makespan / TURNS - SCALE


def simulated(round_: Round, scheme: Scheme, start: float) -> float:
    """Return the mean completion of the same jobs in the simulator."""
    requests = [Request(str(number), came, seconds + start) for number, (came, seconds, _) in enumerate(round_.jobs)]
    return measure(Cluster(scheme, [2] * (CARDS // 2)).run(requests), CARDS).completion


def jobs_of(seed: int) -> list[float]:
    """Return the seconds of all jobs, the long ones first."""
    mean = [seconds for count, seconds in (LONG, SHORT) for _ in range(count)]
    if SEEDS == 1:
        return mean
    rng = random.Random(seed)  # noqa: S311 - the same draws each time
    return [round(seconds * rng.uniform(0.5, 1.5), 3) for seconds in mean]


def compare(folder: Path, wanted: list[float]) -> dict[str, float]:
    """Play jobs by both, and simulate both."""
    folder.mkdir()
    start = overhead(folder)
    plain = play(folder / "plain", wanted)
    with controller(folder, "--interval=500ms", f"--first-level={FIRST_LEVEL}") as log:
        ordered = play(folder / "ordered", wanted)
        updates = re.findall(r"^job ([\d,]+): ", log.read_text(), re.MULTILINE)
    told = statistics.multimode(itertools.chain.from_iterable(row.split(",") for row in updates))
    attained = LeastAttainedService(geometric_levels(FIRST_LEVEL))
    schemes = Scheme(FirstCome()), Scheme(attained, backfill=True, preemptive=True, restart=start)
    seen = [simulated(one, scheme, start) for one, scheme in zip((plain, ordered), schemes, strict=True)]
    return {
        "ends more than jobs": plain.ends + ordered.ends - 2 * len(wanted),
        "a start costs, s": start,
        "mean completion, Slurm's own order, s": plain.completion,
        "mean completion, least attained service, s": ordered.completion,
        "ratio of the mean completions": ordered.completion / plain.completion,
        "the same in the simulator": seen[1] / seen[0],
        "ratio of the makespans": ordered.makespan / plain.makespan,
        "jobs queued again": ordered.restarts,
        "most updates of a job": max(sum(job in row.split(",") for row in updates) for job in told),
        "simulator apart from Slurm, its own order, %": abs(seen[0] / plain.completion - 1) * 100,
        "simulator apart from Slurm, least attained service, %": abs(seen[1] / ordered.completion - 1) * 100,
        "load of the machine": os.getloadavg()[1],
    }


TARGETS = {
    "ends more than jobs": 0,
    "ratio of the mean completions": 0.60,
    "ratio of the makespans": 1.08,
    "most updates of a job": 10,
    "simulator apart from Slurm, its own order, %": 10,
    "simulator apart from Slurm, least attained service, %": 10,
}


def figures(plays: list[dict[str, float]]) -> Iterator[Figure]:
    """Yield the means over all plays, and half their 95 % intervals."""
    yield Figure("a short job runs", SCALE, "s")
    for what in plays[0]:
        values = [play[what] for play in plays]
        mean = statistics.fmean(values)
        yield at_most(what, mean, "", TARGETS[what]) if what in TARGETS else Figure(what, mean, "")
        if len(values) > 1 and len(set(values)) > 1:
            half = STUDENT[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
            yield Figure("  half the 95 % interval", half, "")


def main() -> None:
    """Measure on the cluster that runs."""
    need_cluster("policies")
    plays = [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT and KEPT.exists() else []
    with tempfile.TemporaryDirectory(prefix="convgpu-policies-") as name:
        for seed in range(len(plays), SEEDS):
            plays.append(compare(Path(name) / str(seed), jobs_of(seed)))
            print(json.dumps(plays[-1]), file=sys.stderr, flush=True)
            if KEPT:
                with KEPT.open("a") as file:
                    file.write(json.dumps(plays[-1]) + "\n")
    report("cluster-policies", list(figures(plays)))


if __name__ == "__main__":
    main()
