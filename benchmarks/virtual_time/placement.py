"""The jobs of policies.py, on GPUs by lot and on GPUs that the scheduler chooses, by each policy of placement.

Eight equal devices of 140 GiB, and eight of three sizes that have together as much. *By lot*: each container names a
device, as in policies.py; where its limit does not fit, the next on which it does. *On every device*: as by lot, and
its limit claims all the others too, as a limit without `gpus` did before the scheduler chose. The arguments name arms;
without any all of them run, for some minutes each.
"""

import json
import random
import statistics
import sys
from collections.abc import Mapping

import _above  # noqa: F401 - for the imports below
from _report import RESULTS, percentile
from rich.console import Console
from rich.table import Table

from convgpu.policies.placement import PLACEMENT_POLICIES
from convgpu.simulate.engine import Simulation
from convgpu.simulate.managed import EVERY_DEVICE, Managed
from convgpu.simulate.workload import MODELS, Job, Model, capacities, draw_jobs, unequal_capacities

SEEDS = range(1, 4)
STARVATION_TIMEOUT = 60.0
ARMS = {"by lot": "", **{name: name for name in sorted(PLACEMENT_POLICIES)}, "on every device": EVERY_DEVICE}
HOSTS = {"equal": capacities(), "unequal": unequal_capacities()}

Result = dict[str, float]


def draw(model: Model, seed: int, capacity: Mapping[str, int]) -> list[Job]:
    """Return the jobs of a seed, each on a device that can hold its limit."""
    jobs = draw_jobs(model, random.Random(seed))  # noqa: S311 - a workload, not a secret
    names = list(capacity)
    for job in jobs:
        place = names.index(job.device)
        turned = names[place:] + names[:place]
        job.device = next(device for device in turned if job.limit <= capacity[device])
    return jobs


def measure(placement: str, model: Model, capacity: Mapping[str, int]) -> Result:
    """Play the jobs of each seed, and return the medians."""
    runs = []
    for seed in SEEDS:
        scheme = Managed("best-fit", 1, STARVATION_TIMEOUT, placement=placement, capacity=capacity)
        simulation = Simulation(draw(model, seed, capacity), scheme)
        simulation.run()
        waits = [job.wait for job in simulation.jobs]
        runs.append({"mean": statistics.fmean(waits), "p99": percentile(waits, 99), "longest": max(waits)})
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    """Print and write the medians over the seeds: seconds from arrival to end that are not the work itself."""
    results: dict[str, dict[str, dict[str, Result]]] = {}
    for host, capacity in HOSTS.items():
        for model in MODELS:
            shown = Table(
                title=f"{host} devices, programs allocate {model.name}", title_justify="left", show_edge=False
            )
            for column in ("placement", "mean wait", "p99 wait", "longest wait"):
                shown.add_column(column, justify="left" if column == "placement" else "right")
            rows = results.setdefault(host, {}).setdefault(model.name, {})
            for arm in sys.argv[1:] or ARMS:
                row = rows[arm] = measure(ARMS[arm], model, capacity)
                shown.add_row(arm, *(f"{value:,.0f}" for value in row.values()))
            Console(width=120).print(shown)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "placement.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
