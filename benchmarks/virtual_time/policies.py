"""A thousand simulated containers on eight devices: the same arrivals under each policy, in virtual time.

**The arrivals.** Evenly over 6,000 s, each on a device by lot, so that some devices get more than others; needs drawn
from a lognormal distribution (median 15 GiB, 4 to 80). About 80 % of all memory would be in use if no job ever waited.
A container has a limit on one device; three models say how it allocates (`convgpu.simulate.workload.MODELS`).

**Without ConvGPU** (`convgpu.simulate.baselines`). *Fail and try again*: a job that finds its device full fails, loses
all its work (there is no checkpoint) and is started again by a supervisor with back-off (5 s, doubled up to 300 s);
each further start takes `restart` seconds more (container, CUDA, loading), in which it holds nothing. *Whole limit
first*: no job starts before its whole limit is free; the oldest that fits is next. *One at a time*: one container on
each device. *Without safety*: all wait, and the youngest is ended at each deadlock. It *stands still* where jobs that
wait for each other are ended and started again without end; then there are no figures.

**Memory that can leave** (`convgpu.simulate.suspending`). Containers are elastic: while one waits, its memory may go to
the host and come back, at 40 GiB/s each way and both at once, after a drain of 0.05 s. The scheduler's own machine
decides every step. *Host 1x*: at most as much memory is out as the card has. *Time slices*: running containers lose
their turn as well, for 5 % of the time. *Placed*: a container gets the device with the least sum of limits when it
starts, under each way.

**Waiting** is all the time from arrival to end that is not the work itself, done once. **Working** is memory held
while its container works, in work that is not lost; **paused** memory is held by containers that wait for more;
**unsafe** is free although a waiting allocation would fit (safety, or an older one's turn); the rest is free, mostly
where no job waits. *Second programs*: each container ran a program before, which used its whole limit. Memory that
programs free in between, settling and CUDA's own time are not modelled; contexts are in the tables that say so.
"""

import json
import random
import statistics
from collections.abc import Callable

import _above  # noqa: F401 - for the imports below
from _report import RESULTS, percentile
from rich.console import Console
from rich.table import Table

from convgpu.core.machine import Machine
from convgpu.policies.memory import POLICIES, make_policy
from convgpu.policies.placement import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from convgpu.simulate.baselines import FailAndRetry, OneAtATime, WholeLimitFirst, WithoutSafety
from convgpu.simulate.engine import Scheme, Simulation, StandsStillError
from convgpu.simulate.managed import Managed
from convgpu.simulate.suspending import UNBOUNDED, Suspending
from convgpu.simulate.workload import CAPACITY, DEVICES, LARGE, MODELS, Job, Model, Phase, capacities, draw_jobs

SEEDS = range(1, 6)
RESTARTS = (0.0, 30.0, 120.0)
TIMEOUTS = (0.0, 60.0, 600.0)
STARVATION_TIMEOUT = 60.0
PRIORITIES = (0, 10, 100)
CONTEXT = 1 << 29  # bytes
SWITCH_COSTS = (0.0, 0.01, 0.05)

Result = dict[str, float]  # empty where jobs stand still


def managed(
    policy: str,
    starvation_timeout: float = STARVATION_TIMEOUT,
    *,
    second_programs: bool = False,
    is_whole: bool = False,
) -> Managed:
    """Return ConvGPU as a scheme; its own chance is the same in each run."""
    seed = random.Random(1).getrandbits(64)  # noqa: S311 - a workload, not a secret
    return Managed(policy, seed, starvation_timeout, second_programs=second_programs, is_whole=is_whole)


def measure_priority(model: Model, priority: int) -> Result:
    """Give every tenth container a priority; return the medians of mean waits, and of the longest."""
    runs = []
    for seed in SEEDS:
        jobs = draw_jobs(model, random.Random(seed))  # noqa: S311 - a workload, not a secret
        for job in jobs[::10]:
            job.priority = priority
        Simulation(jobs, managed("best-fit")).run()
        urgent, others = jobs[::10], [job for job in jobs if job.number % 10]
        means = [statistics.fmean(job.wait for job in group) for group in (urgent, others)]
        longest = max(job.wait for job in others)
        row = {"every tenth": means[0], "the others": means[1], "ratio, %": 100 * means[0] / means[1]}
        runs.append({**row, "longest": longest})
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def suspending(policy: str = "best-fit", pool: int = UNBOUNDED, switch_cost: float = 0.0) -> Suspending:
    """Return ConvGPU with memory that can leave as a scheme; `pool`: bytes of the host for each device."""
    policy_of_machine = make_policy(policy, seed=1)
    return Suspending(Machine(capacities(), policy_of_machine, STARVATION_TIMEOUT, switch_cost=switch_cost), pool)


def with_contexts(jobs: list[Job]) -> list[Job]:
    """Let each job begin with a CUDA context, as every program does that uses CUDA."""
    for job in jobs:
        job.phases.insert(0, Phase(CONTEXT, 0.0, is_context=True))
        job.limit = min(job.limit + CONTEXT, CAPACITY)
        job.phases[-1] = job.phases[-1]._replace(size=job.phases[-1].size - max(job.need - job.limit, 0))
    return jobs


def measure(
    make_scheme: Callable[[], Scheme],
    model: Model,
    restart: float = 0.0,
    *,
    is_placed: bool = False,
    contexts: bool = False,
) -> Result:
    """Play the jobs of each seed under a scheme, and return the medians; nothing if jobs stand still with a seed."""
    runs = []
    for seed in SEEDS:
        draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
        placement = PLACEMENT_POLICIES[DEFAULT_PLACEMENT] if is_placed else None
        jobs = draw_jobs(model, draw)
        simulation = Simulation(with_contexts(jobs) if contexts else jobs, make_scheme(), restart, placement)
        try:
            simulation.run()
        except StandsStillError:
            return {}
        scheme = simulation.scheme
        makespan = max(job.end for job in simulation.jobs)
        waits = [job.wait for job in simulation.jobs]
        whole = DEVICES * CAPACITY * makespan
        runs.append(
            {
                "makespan": makespan,
                "mean wait": statistics.fmean(waits),
                "p99 wait": percentile(waits, 99),
                "longest wait": max(waits),
                "mean wait, large": statistics.fmean(job.wait for job in simulation.jobs if job.need > LARGE),
                **{share: 100 * simulation.shares[share] / whole for share in ("working", "paused", "unsafe", "lost")},
                "failures": simulation.failures,
                "moved, TiB": scheme.moved / (1 << 40) if isinstance(scheme, Suspending) else 0.0,
                "most out, GiB": scheme.most_out / (1 << 30) if isinstance(scheme, Suspending) else 0.0,
            }
        )
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def table(title: str, rows: dict[str, Result]) -> None:
    """Print the medians."""
    columns = list(next(iter(rows.values())))
    shown = Table(title=title, title_justify="left", show_edge=False)
    shown.add_column("")
    for column in columns:
        shown.add_column(column, justify="right")
    for name, row in rows.items():
        if not row:
            shown.add_row(name, "stands still")
            continue
        shares = {"working", "paused", "unsafe", "lost"}
        texts = [_format(row[column], is_share=column in shares, digits=int("TiB" in column)) for column in columns]
        shown.add_row(name, *texts)
    Console(width=140).print(shown)


def priorities() -> dict[str, dict[str, Result]]:
    """Print and return what a priority does, by model."""
    results = {}
    for model in MODELS:
        rows = {f"priority {priority}": measure_priority(model, priority) for priority in PRIORITIES}
        table(f"priority of every tenth container, programs allocate {model.name}", rows)
        results[f"priority, {model.name}"] = rows
    return results


def _format(value: float, *, is_share: bool, digits: int) -> str:
    return f"{value:.1f} %" if is_share else f"{value:,.{digits}f}"


def measure_suspending(model: Model) -> dict[str, Result]:
    """Return the ways in which memory can leave, and what they are to be compared with, each placed as well."""
    rows = {
        "suspend": measure(suspending, model),
        "suspend, host 1x": measure(lambda: suspending(pool=CAPACITY), model),
    }
    placed: dict[str, Callable[[], Scheme]] = {
        "try again": FailAndRetry,
        "whole limit first": WholeLimitFirst,
        "best-fit": lambda: managed("best-fit"),
        "suspend": suspending,
        "suspend, host 1x": lambda: suspending(pool=CAPACITY),
    }
    return rows | {f"placed: {name}": measure(make, model, is_placed=True) for name, make in placed.items()}


def main() -> None:
    """Print and write medians over the seeds: times in seconds, shares of all memory over the makespan."""
    results = {}
    for model in MODELS:
        rows = {name: measure(lambda name=name: managed(name), model) for name in sorted(POLICIES)}
        rows["best-fit, second programs"] = measure(lambda: managed("best-fit", second_programs=True), model)
        for restart in RESTARTS:
            rows[f"try again, {restart:.0f} s"] = measure(FailAndRetry, model, restart)
        rows["best-fit, admit=whole"] = measure(lambda: managed("best-fit", is_whole=True), model)
        rows["without safety"] = measure(WithoutSafety, model)
        rows["whole limit first"] = measure(WholeLimitFirst, model)
        rows["whole limit first, aged"] = measure(lambda: WholeLimitFirst(STARVATION_TIMEOUT), model)
        rows["one at a time"] = measure(OneAtATime, model)
        table(f"policies, programs allocate {model.name}", rows)
        results[model.name] = rows
        rows = measure_suspending(model)
        table(f"memory that can leave, programs allocate {model.name}", rows)
        results[f"{model.name}: suspend"] = rows
        rows = {name: measure(lambda name=name: managed(name), model, contexts=True) for name in sorted(POLICIES)}
        for name in sorted(POLICIES):
            rows[f"placed: {name}"] = measure(lambda name=name: managed(name), model, is_placed=True, contexts=True)
        rows["best-fit, admit=whole"] = measure(lambda: managed("best-fit", is_whole=True), model, contexts=True)
        rows["whole limit first"] = measure(WholeLimitFirst, model, contexts=True)
        rows["whole limit first, aged"] = measure(lambda: WholeLimitFirst(STARVATION_TIMEOUT), model, contexts=True)
        table(f"contexts of half a GiB, programs allocate {model.name}", rows)
        results[f"{model.name}: contexts"] = rows
    results |= priorities()
    rows = {
        f"time slices at {100 * cost:.0f} %, placed": measure(
            lambda cost=cost: suspending(switch_cost=cost), MODELS[0], is_placed=True
        )
        for cost in SWITCH_COSTS
    }
    table(f"time slices, programs allocate {MODELS[0].name}", rows)
    results["time_slices"] = rows
    rows = {f"{seconds:g} s": measure(lambda s=seconds: managed("best-fit", s), MODELS[0]) for seconds in TIMEOUTS}
    table(f"best-fit by starvation timeout, programs allocate {MODELS[0].name}", rows)
    results["starvation_timeout"] = rows
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "policies.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
