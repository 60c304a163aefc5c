"""The comparisons of policies that draw nothing, on ten traces dealt anew from each published one: 95 % intervals.

A dealt trace has the arrival times of the published one. The job of each arrival is drawn from all its jobs, with
replacement, so durations and sizes are a sample of what such a cluster sees. Muri's jobs have no memory: on shared
cards each gets that of one of Lucid's measured configurations.

Needs the traces that docs/simulation.md names, in the folder of CONVGPU_TRACES; they are not shipped.

    cluster_seeds.py [FILE]     each draw is kept in FILE as soon as it is played, so that a later run goes on there
"""

import csv
import functools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _report import Figure, at_most, report

from convgpu.simulate.cluster.engine import Cluster
from convgpu.simulate.cluster.jobs import Request
from convgpu.simulate.cluster.metrics import measure
from convgpu.simulate.cluster.published import TrainingJob, published_scheduler, training_job
from convgpu.simulate.cluster.schemes import schemes
from convgpu.simulate.cluster.traces import read_muri, read_openb

SEEDS = 10
STUDENT = 2.262  # of 9 degrees of freedom, 95 %
TRACES = ("1", "3", "4", "2")  # on shared cards the last takes minutes for each draw
NODES = [8] * 8  # Muri's cluster
CARD = 24_268  # MiB of the cards on which Lucid measured
SHARED = "shared-least-attained"
Row = dict[str, str]


def rows(path: Path) -> list[Row]:
    """Return the lines of a trace."""
    with path.open() as file:
        return list(csv.DictReader(file))


def interval(what: str, values: list[float], target: float | None = None) -> Iterator[Figure]:
    """Yield the mean of all seeds and half its 95 % interval."""
    mean = statistics.fmean(values)
    yield Figure(what, mean, "") if target is None else at_most(what, mean, "", target)
    yield Figure("  half the 95 % interval", STUDENT * statistics.stdev(values) / len(values) ** 0.5, "")


def openb(pods: list[Request], seed: int) -> float:
    """Five shared cards by least attained service, against eight exclusive ones in order."""
    rng = random.Random(seed)  # noqa: S311 - the same draws each time
    dealt = [replace(rng.choice(pods), name=str(number), submitted=pod.submitted) for number, pod in enumerate(pods)]
    known = schemes()
    shared = measure(Cluster(known[SHARED], [5]).run(dealt), 5).completion
    return shared / measure(Cluster(known["exclusive-first-come"], [8]).run(dealt), 8).completion


def deal(trace: list[Row], rng: random.Random) -> tuple[list[Row], float]:
    """Return a dealt trace, and its mean completion by Tiresias as published."""
    dealt = [
        {**rng.choice(trace), "job_id": str(number), "submit_time": row["submit_time"]}
        for number, row in enumerate(trace)
    ]
    jobs: list[TrainingJob] = published_scheduler("tiresias").run(map(training_job, dealt))
    return dealt, statistics.fmean(job.ended - job.submitted for job in jobs)


def exclusive(trace: list[Row], seed: int) -> float:
    """Least attained service in eight levels on exclusive cards, against Tiresias as published."""
    dealt, bar = deal(trace, random.Random(seed))  # noqa: S311 - the same draws each time
    cluster = Cluster(schemes()["exclusive-least-attained"], NODES)
    return measure(cluster.run(read_muri(dealt)), sum(NODES)).completion / bar


def shared(trace: list[Row], pairs: list[tuple[float, float]], seed: int) -> float:
    """The same on shared cards."""
    rng = random.Random(seed)  # noqa: S311
    dealt, bar = deal(trace, rng)
    jobs = [
        replace(job, memory=memory, utilisation=use) for job in read_muri(dealt) for memory, use in (rng.choice(pairs),)
    ]
    return measure(Cluster(schemes()[SHARED], NODES).run(jobs), sum(NODES)).completion / bar


class Draws:
    """What each seed of each comparison gave; kept in a file where there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._known: dict[tuple[str, int], float] = {
            (one["what"], one["seed"]): one["found"] for one in map(json.loads, lines)
        }

    def of(self, what: str, play: Callable[[int], float]) -> list[float]:
        """Return what all seeds give; those that are not known are played."""
        for seed in range(SEEDS):
            if (what, seed) not in self._known:
                begin, found = time.process_time(), play(seed)
                self._known[what, seed] = found
                line = {"what": what, "seed": seed, "found": found, "seconds": round(time.process_time() - begin, 1)}
                print(json.dumps(line), file=sys.stderr, flush=True)
                if self._path is not None:
                    with self._path.open("a") as file:
                        file.write(json.dumps(line) + "\n")
        return [self._known[what, seed] for seed in range(SEEDS)]


def compare(folder: Path, draws: Draws) -> list[Figure]:
    """Play all seeds of all traces in a folder."""
    pods = list(read_openb(rows(folder / "openb_pod_list_default.csv")))
    lucid = rows(folder / "lucid_single.csv")
    pairs = [(min(float(row["gmem"]) / CARD, 1.0), float(row["gpu_util"]) / 100) for row in lucid]
    ratios = draws.of("openb", functools.partial(openb, pods))
    figures = list(interval("openb: 5 shared cards against 8 exclusive ones", ratios, 1))
    traces = {name: rows(path) for name in TRACES if (path := folder / f"muri-trace{name}.csv").exists()}
    plays: dict[str, Callable[[list[Row], int], float]] = {
        "exclusive": exclusive,
        "shared": lambda trace, seed: shared(trace, pairs, seed),
    }
    for what, target in (("exclusive", 0.85), ("shared", 0.77)):
        found = {
            name: draws.of(f"Muri {name}, {what}", functools.partial(plays[what], trace))
            for name, trace in traces.items()
        }
        for name, values in found.items():
            figures += interval(f"Muri's trace {name}: eight levels, {what}", values, 1.15)
        means = [statistics.geometric_mean(values[seed] for values in found.values()) for seed in range(SEEDS)]
        figures += interval(f"geometric mean of {len(found)} traces, {what}", means, target)
    return figures


def main() -> None:
    """Say what is missing, or play."""
    name = os.environ.get("CONVGPU_TRACES")
    if not name:
        sys.exit("cluster-seeds: NOT RUN: no folder of traces; CONVGPU_TRACES names one (docs/simulation.md)")
    report("cluster-seeds", compare(Path(name), Draws(Path(sys.argv[1]) if len(sys.argv) > 1 else None)))


if __name__ == "__main__":
    main()
