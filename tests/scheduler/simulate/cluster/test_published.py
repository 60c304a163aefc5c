"""Our figures against published ones, on the same traces."""

import csv
from pathlib import Path
from statistics import fmean

import pytest

from convgpu.simulate.cluster.engine import Cluster
from convgpu.simulate.cluster.metrics import measure
from convgpu.simulate.cluster.published import TrainingJob, published_scheduler, training_job
from convgpu.simulate.cluster.schemes import schemes
from convgpu.simulate.cluster.traces import read_openb

# Mean JCT and makespan in seconds, as published with Muri (simulator/draw_fig9-10.py).
PUBLISHED = {
    ("trace2", "srtf"): (2665607.375, 48847005.197635),
    ("trace2", "srsf"): (2213949.687, 49026465.31107),
    ("trace2", "tiresias"): (7396368.514, 48117093.307735),
    ("trace3", "srtf"): (193081.796, 8174135.28),
    ("trace3", "srsf"): (185021.8802, 8174135.28),
    ("trace3", "tiresias"): (347213.2481, 8174226.28),
}


@pytest.mark.parametrize(("trace", "scheduler"), PUBLISHED)
def test_the_published_mean_completion_and_makespan_come_out(traces: Path, trace: str, scheduler: str) -> None:
    with (traces / f"muri-{trace}.csv").open() as lines:
        jobs = published_scheduler(scheduler).run(training_job(row) for row in csv.DictReader(lines))
    begin = min(job.submitted for job in jobs)
    figures = (fmean(job.ended - job.submitted for job in jobs), max(job.ended for job in jobs) - begin)
    assert figures == pytest.approx(PUBLISHED[trace, scheduler], rel=1e-5)


def test_a_job_that_is_too_wide_is_refused() -> None:
    wide = TrainingJob("wide", 0, 65, 10, 1.0, 4, 10.0)
    with pytest.raises(ValueError, match="job wide asks for more GPUs than the cluster has"):
        published_scheduler("tiresias").run([wide])


def test_five_shared_cards_serve_openb_better_than_eight_exclusive_ones(traces: Path) -> None:
    with (traces / "openb_pod_list_default.csv").open() as lines:
        pods = list(read_openb(csv.DictReader(lines)))
    known = schemes()
    exclusive = measure(Cluster(known["exclusive-first-come"], [8]).run(pods), 8)
    shared = measure(Cluster(known["shared-least-attained"], [5]).run(pods), 5)
    assert (len(pods), round(exclusive.completion)) == (2569, 19866)
    assert shared.completion < 0.53 * exclusive.completion
