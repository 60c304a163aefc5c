"""How much memory is of use when somebody always waits: a closed system, in virtual time.

Twelve containers are on each of eight devices at any time: when one ends, the next one comes. **Useful** is memory
held while its container works, in work that is not lost, out of all memory until the last container came. The programs
are those of `policies.py`; a *context* of half a GiB comes before the first allocation of each.
"""

import json
import random
import statistics
from collections.abc import Callable

import _above  # noqa: F401 - for the imports below
from _report import RESULTS
from policies import STARVATION_TIMEOUT, managed
from rich.console import Console
from rich.table import Table

from convgpu.simulate.baselines import WholeLimitFirst, WithoutSafety
from convgpu.simulate.engine import Scheme, Simulation
from convgpu.simulate.workload import CAPACITY, DEVICES, GIB, MODELS, Job, Model, Phase, draw_jobs

SEEDS = range(1, 4)
ON_A_DEVICE = 12
CONTEXT = GIB // 2


class Closed(Simulation):
    """Starts the next container when one ends, on the same device."""

    def __init__(self, jobs: list[Job], scheme: Scheme) -> None:
        super().__init__(jobs, scheme)
        present = ON_A_DEVICE * DEVICES
        for number, job in enumerate(jobs[:present]):
            job.arrival, job.device = 0.0, f"g{number % DEVICES}"
        self.next_jobs = iter(jobs[present:])
        for job in jobs[present:]:
            job.arrival = float("inf")
        self.last_arrival = 0.0
        self.useful = 0.0

    def ended(self, job: Job) -> None:
        """Let the next container come."""
        following = next(self.next_jobs, None)
        if following is not None:
            self.useful += job.byte_seconds
            following.device, following.arrival, self.last_arrival = job.device, self.now, self.now
            self.begin(following)


def measure(make_scheme: Callable[[], Scheme], model: Model) -> dict[str, float]:
    """Return the medians over the seeds: useful memory and memory of those that wait, in percent."""
    runs = []
    for seed in SEEDS:
        jobs = draw_jobs(model, random.Random(seed))  # noqa: S311 - a workload, not a secret
        for job in jobs:
            job.phases.insert(0, Phase(CONTEXT, 0.0, is_context=True))
            job.limit = min(job.limit + CONTEXT, CAPACITY)
        simulation = Closed(jobs, make_scheme())
        simulation.run()
        whole = DEVICES * CAPACITY * simulation.last_arrival
        ended = max(job.end for job in jobs)
        paused = simulation.shares["paused"] / (DEVICES * CAPACITY * ended)
        runs.append(
            {"useful": 100 * simulation.useful / whole, "paused": 100 * paused, "restarts": simulation.failures}
        )
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


ARMS: dict[str, Callable[[], Scheme]] = {
    "best-fit": lambda: managed("best-fit"),
    "best-fit, admit=whole": lambda: managed("best-fit", is_whole=True),
    "without safety": WithoutSafety,
    "whole limit first": WholeLimitFirst,
    "whole limit first, aged": lambda: WholeLimitFirst(STARVATION_TIMEOUT),
}


def main() -> None:
    """Print and write the shares of each arm."""
    results = {}
    for model in MODELS:
        rows = results[model.name] = {name: measure(arm, model) for name, arm in ARMS.items()}
        shown = Table(title=f"closed system, programs allocate {model.name}", title_justify="left", show_edge=False)
        for column in ("", "useful", "paused", "restarts"):
            shown.add_column(column, justify="right" if column else "left")
        for name, row in rows.items():
            shown.add_row(name, f"{row['useful']:.0f} %", f"{row['paused']:.0f} %", f"{row['restarts']:,.0f}")
        Console(width=120).print(shown)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "closed_system.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
