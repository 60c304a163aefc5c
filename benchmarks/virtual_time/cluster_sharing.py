"""Sharing on Philly's jobs with memory and utilisation drawn from Lucid's measurements: ten draws, 95 % intervals.

Needs the traces that docs/simulation.md names, in the folder of CONVGPU_TRACES; they are not shipped.
"""

import csv
import gzip
import os
import random
import statistics
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _report import Figure, at_most, report

from convgpu.simulate.cluster.engine import Cluster
from convgpu.simulate.cluster.jobs import Request
from convgpu.simulate.cluster.metrics import measure
from convgpu.simulate.cluster.schemes import schemes
from convgpu.simulate.cluster.traces import read_philly

FIRST, JOBS, NODES = 30_000, 10_000, [8] * 40
DRAWS = 10
CARD = 24_268  # MiB of the cards on which Lucid measured
STUDENT = 2.262  # of 9 degrees of freedom, 95 %


def read(folder: Path) -> tuple[list[Request], list[tuple[float, float]]]:
    """Return jobs, and the pairs of memory and utilisation that are drawn from."""
    with gzip.open(folder / "philly.csv.gz", "rt") as file:
        jobs = list(read_philly(csv.DictReader(file)))[FIRST : FIRST + JOBS]
    with (folder / "lucid_single.csv").open() as file:
        rows = list(csv.DictReader(file))
    return jobs, [(min(float(row["gmem"]) / CARD, 1.0), float(row["gpu_util"]) / 100) for row in rows]


def mean(jobs: list[Request], scheme: str) -> float:
    """Return the mean completion in seconds."""
    return measure(Cluster(schemes()[scheme], NODES).run(jobs), sum(NODES)).completion


def main() -> None:
    """Play ten draws."""
    folder = os.environ.get("CONVGPU_TRACES")
    if not folder:
        sys.exit("cluster-sharing: NOT RUN: no folder of traces; CONVGPU_TRACES names one (docs/simulation.md)")
    jobs, pairs = read(Path(folder))
    exclusive = mean(jobs, "exclusive-first-come")
    ratios = []
    for seed in range(DRAWS):
        rng = random.Random(seed)  # noqa: S311 - the same draws each time
        drawn = [replace(job, memory=memory, utilisation=use) for job in jobs for memory, use in (rng.choice(pairs),)]
        ratios.append(mean(drawn, "shared-first-come") / exclusive)
    half = STUDENT * statistics.stdev(ratios) / DRAWS**0.5
    report(
        "cluster-sharing",
        [
            Figure("exclusive, first come: mean completion", exclusive, "s"),
            at_most("shared, first come: ratio, mean of ten draws", statistics.fmean(ratios), "", 0.65),
            Figure("half the 95 % interval", half, ""),
            Figure("least, most ratio of a draw", min(ratios), f"and {max(ratios):.4g}"),
        ],
    )


if __name__ == "__main__":
    main()
