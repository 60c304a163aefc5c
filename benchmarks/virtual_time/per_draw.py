"""Memory that can leave against best-fit, draw by draw, where programs allocate all at once.

Medians over draws hide a draw in which one way is worse. Here each draw of `policies.py` is played under both ways, and
what is shown is the ratio of memory that can leave to best-fit: makespan, mean wait, p99 and longest wait. Limits are
the need and twice the need; the host's memory is unbounded, or once the cards'.

A play of a draw is one of many that could have been: a queue is chaotic, and with each arrival moved by at most a
second best-fit's own mean wait changes by up to a third. So each draw is played several times, as *twins* whose
arrivals differ by at most a second, and the means over its twins are compared. Beside them stands best-fit against
itself: each twin against the mean of the draw's others.
"""

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable

import _above  # noqa: F401 - for the imports below
from _report import RESULTS, percentile
from policies import managed, suspending

from convgpu.policies.placement import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from convgpu.simulate.engine import Scheme, Simulation
from convgpu.simulate.workload import CAPACITY, Model, draw_jobs

ALL_AT_ONCE = ((1.0, 290),)
JITTER = 1.0  # seconds by which the arrivals of twins differ at most
LIMITS = {"the need": 1.0, "twice the need": 2.0}
WAYS: dict[str, Callable[[], Scheme]] = {
    "unbounded": suspending,
    "once": lambda: suspending(pool=CAPACITY),
}

Figures = dict[str, float]


def play(scheme: Scheme, model: Model, seed: int, twin: int = 0, *, is_placed: bool) -> Figures:
    """Play one draw, or a twin of it from 1 on; return its figures in seconds."""
    jobs = draw_jobs(model, random.Random(seed))  # noqa: S311 - a workload, not a secret
    jitter = random.Random(twin)  # noqa: S311 - as above
    for job in jobs if twin else ():
        job.arrival = max(job.arrival + jitter.uniform(-JITTER, JITTER), 0.0)
    placement = PLACEMENT_POLICIES[DEFAULT_PLACEMENT] if is_placed else None
    simulation = Simulation(jobs, scheme, 0.0, placement)
    simulation.run()
    waits = [job.wait for job in simulation.jobs]
    return {
        "makespan": max(job.end for job in simulation.jobs),
        "mean": statistics.fmean(waits),
        "p99": percentile(waits, 99),
        "longest": max(waits),
    }


def play_twins(make: Callable[[], Scheme], model: Model, seed: int, twins: int, *, is_placed: bool) -> list[Figures]:
    """Play a draw's twins; without any, the draw itself."""
    numbers = range(1, twins + 1) if twins else [0]
    return [play(make(), model, seed, twin, is_placed=is_placed) for twin in numbers]


def ratios(found: list[Figures], base: list[Figures]) -> Figures:
    """Return the ratios of the means over the twins."""
    return {key: statistics.fmean(f[key] for f in found) / statistics.fmean(b[key] for b in base) for key in base[0]}


def against_itself(twins: list[Figures]) -> list[Figures]:
    """Return the ratios of each twin to the mean of the others."""
    return [ratios([twin], twins[:place] + twins[place + 1 :]) for place, twin in enumerate(twins) if len(twins) > 1]


def show(title: str, rows: list[Figures]) -> None:
    """Print median and range of each ratio, in how many it is above 1, and their geometric mean with 95 % interval."""
    for key in rows[0]:
        values = sorted(row[key] for row in rows)
        above = sum(value > 1.0005 for value in values)
        text = (
            f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f}), longer in {above} of {len(values)}"
        )
        if len(values) > 1:
            logs = [math.log(value) for value in values]
            middle, half = statistics.fmean(logs), 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
            text += f"; {math.exp(middle):.3f} ({math.exp(middle - half):.3f} to {math.exp(middle + half):.3f})"
        print(f"{title}: {key} {text}")


def main() -> None:
    """Print and write the ratios of each draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("draws", type=int, nargs="?", default=12)
    parser.add_argument("--twins", type=int, default=4, help="plays of each draw; 0: the draw itself")
    parser.add_argument("--limits", choices=LIMITS, nargs="+", default=list(LIMITS))
    parser.add_argument("--host", choices=WAYS, nargs="+", default=list(WAYS), help="bound of the host's memory")
    parser.add_argument("--by-lot", action="store_true", help="devices by lot, and not placed")
    given = parser.parse_args()
    results = []
    for limits in given.limits:
        model = Model("all at once", ALL_AT_ONCE, LIMITS[limits])
        rows: dict[str, list[Figures]] = {"best-fit against itself": []}
        for seed in range(1, given.draws + 1):
            is_placed = not given.by_lot
            base = play_twins(lambda: managed("best-fit"), model, seed, given.twins, is_placed=is_placed)
            rows["best-fit against itself"] += against_itself(base)
            for name in given.host:
                found = play_twins(WAYS[name], model, seed, given.twins, is_placed=is_placed)
                rows.setdefault(f"host {name}", []).append(ratios(found, base))
                shown = {key: round(value, 2) for key, value in rows[f"host {name}"][-1].items()}
                print(limits, name, seed, shown, flush=True)
                results.append({"limits": limits, "host": name, "seed": seed, "best-fit": base, "found": found})
        for name, found_rows in rows.items():
            if found_rows:
                show(f"limits {limits}, {name}", found_rows)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "per_draw.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
