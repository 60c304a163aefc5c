"""Daemons that are killed: no container outlives its job, no job its container, and Slurm goes on."""

import os
import signal
import time

import pytest

pytestmark = pytest.mark.slurm

IMAGE = "convgpu/demo"
OBEDIENT = 'trap "exit 0" TERM; echo runs; sleep 600 & wait'


@pytest.fixture
def job(cluster):
    """A job that runs on n1."""
    number = cluster.submit("--gpu-memory", "2g", "--sbatch=--nodelist=n1", IMAGE, "sh", "-c", OBEDIENT)
    cluster.wait_until_printed(number, "runs")
    return number


def kill(cluster, pattern):
    cluster.nodes("pkill", "-KILL", "-f", pattern)


def test_a_killed_slurmd_comes_back_to_its_job(cluster, job):
    kill(cluster, "^slurmd -D -N n1$")
    assert (cluster.state(job), len(cluster.containers(job))) == ("running", 1)
    cluster.nodes("slurmd", "-N", "n1")
    cluster.nodes("convgpu", "cancel", str(job))
    cluster.wait_until_gone(job)


def wait_until_saved(cluster, job):
    """Wait until the controller has written its state: it knows nothing of what it did not write."""
    file = cluster.nodes.folder / "state/job_state"
    before = time.time()
    cluster.nodes("scontrol", "update", f"jobid={job}", "comment=changed")
    cluster.wait_for("the state is saved", lambda: file.exists() and file.stat().st_mtime > before)


def test_a_killed_controller_finds_its_jobs_again(cluster, job):
    wait_until_saved(cluster, job)
    kill(cluster, "^slurmctld -D -c$")
    assert len(cluster.containers(job)) == 1
    cluster.nodes("slurmctld")
    cluster.wait_until(job, "running")
    cluster.nodes("convgpu", "cancel", str(job))
    cluster.wait_until_gone(job)


def test_a_killed_client_of_docker_ends_the_job_and_its_container(cluster, job):
    kill(cluster, f"^docker .*convgpu-{job}-")
    cluster.wait_until(job, "failed")
    cluster.wait_until_gone(job)


def test_a_killed_step_leaves_no_container(cluster, job):
    """Slurm's supervisor of the job is killed; Slurm learns it when the node reports."""
    kill(cluster, rf"^slurmstepd: \[{job}.batch\]")
    cluster.nodes("convgpu", "cancel", str(job))
    cluster.wait_until_gone(job)


@pytest.fixture
def forgotten(cluster):
    """A job that Slurm forgot: it has a file and a container on n1."""
    labels = ("--label=convgpu.job=999999", "--label=convgpu.node=n1")
    cluster.nodes.engine("create", *labels, IMAGE, "true")
    cluster.nodes.jobs.mkdir(parents=True, exist_ok=True)  # the first Prolog makes it
    (cluster.nodes.jobs / "999999.n1.json").write_text('{"node": "n1", "cards": {}}')
    return 999999


def test_what_a_killed_slurmd_left_goes_with_the_next_job(cluster, forgotten):
    """The Epilog of another job on the node removes it."""
    cluster.result(cluster.sbatch("--nodelist=n1", "--gres=gpumem:1G", wrap="true"))
    cluster.wait_until_gone(forgotten)


def test_what_a_killed_slurmd_left_goes_when_it_starts_again(cluster, forgotten):
    kill(cluster, "^slurmd (-D )?-N n1$")
    cluster.nodes("slurmd", "-N", "n1")
    cluster.wait_until_gone(forgotten)


def test_a_killed_scheduler_of_convgpu_takes_no_job_with_it(cluster, job):
    os.kill(cluster.nodes.engine.processes("convgpu")["daemon"], signal.SIGKILL)
    next_job = cluster.submit("--gpu-memory", "2g", IMAGE, "gpu-hold", "1g")
    cluster.result(next_job)
    assert (cluster.state(job), len(cluster.containers(job))) == ("running", 1)
