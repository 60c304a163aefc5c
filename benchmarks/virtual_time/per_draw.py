"""Memory that can leave against best-fit, draw by draw, where programs allocate all at once.

Medians over draws hide a draw in which one way is worse. Here each draw of `policies.py` is played under both ways, and
what is shown is the ratio of memory that can leave to best-fit: makespan, mean wait, p99 and longest wait. Limits are
the need and twice the need; the host's memory is unbounded, or once the cards'.
"""

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterable, Iterator

import _above  # noqa: F401 - for the imports below
from _report import RESULTS, percentile
from policies import managed, suspending

from convgpu.policies.placement import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from convgpu.simulate.engine import Scheme, Simulation
from convgpu.simulate.workload import CAPACITY, Model, draw_jobs

ALL_AT_ONCE = ((1.0, 290),)
LIMITS = {"the need": 1.0, "twice the need": 2.0}
WAYS: dict[str, Callable[[], Scheme]] = {
    "unbounded": suspending,
    "once": lambda: suspending(pool=CAPACITY),
}

Figures = dict[str, float]


def play(scheme: Scheme, model: Model, seed: int, *, is_placed: bool) -> Figures:
    """Play one draw; return its figures in seconds."""
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    placement = PLACEMENT_POLICIES[DEFAULT_PLACEMENT] if is_placed else None
    simulation = Simulation(draw_jobs(model, draw), scheme, 0.0, placement)
    simulation.run()
    waits = [job.wait for job in simulation.jobs]
    return {
        "makespan": max(job.end for job in simulation.jobs),
        "mean": statistics.fmean(waits),
        "p99": percentile(waits, 99),
        "longest": max(waits),
    }


def compare(
    slack: float, seeds: Iterable[int], ways: Iterable[str], *, is_placed: bool
) -> Iterator[tuple[str, int, Figures, Figures]]:
    """Play each draw under the ways; yield figures of each beside those of best-fit."""
    model = Model("all at once", ALL_AT_ONCE, slack)
    for seed in seeds:
        base = play(managed("best-fit"), model, seed, is_placed=is_placed)
        for name in ways:
            yield name, seed, base, play(WAYS[name](), model, seed, is_placed=is_placed)


def show(title: str, ratios: list[Figures]) -> None:
    """Print median and range of each ratio, and in how many draws it is above 1."""
    for key in ratios[0]:
        values = sorted(row[key] for row in ratios)
        above = sum(value > 1.0005 for value in values)
        spread = f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})"
        print(f"{title}: {key} {spread}, longer in {above} of {len(values)} draws")


def main() -> None:
    """Print and write the ratios of each draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("draws", type=int, nargs="?", default=12)
    parser.add_argument("--limits", choices=LIMITS, nargs="+", default=list(LIMITS))
    parser.add_argument("--host", choices=WAYS, nargs="+", default=list(WAYS), help="bound of the host's memory")
    parser.add_argument("--by-lot", action="store_true", help="devices by lot, and not placed")
    given = parser.parse_args()
    results = []
    for limits in given.limits:
        rows: dict[str, list[Figures]] = {}
        seeds = range(1, given.draws + 1)
        for name, seed, base, found in compare(LIMITS[limits], seeds, given.host, is_placed=not given.by_lot):
            print(limits, name, seed, {key: f"{found[key]:.0f}/{base[key]:.0f}" for key in base}, flush=True)
            rows.setdefault(name, []).append({key: found[key] / base[key] for key in base})
            results.append({"limits": limits, "host": name, "seed": seed, "best-fit": base, "found": found})
        for name, ratios in rows.items():
            show(f"limits {limits}, host {name}", ratios)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "per_draw.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
