"""The controller on a real Slurm: who had least goes first, memory is learned, and without it Slurm goes on."""

import re
import subprocess

import pytest

pytestmark = pytest.mark.slurm

IMAGE = "convgpu/demo"
CHECKPOINTED = (
    'trap "touch /c/$PET_NODE_RANK; exit 0" TERM; if [ -e /c/$PET_NODE_RANK ]; then echo goes on; exit 0; fi; \
echo begins; sleep 600 & wait'
)


@pytest.fixture
def controller(cluster, tmp_path):
    """Start it; return its log and what stops it."""
    log = tmp_path / "controller.log"
    words = ("convgpu", "slurm", "controller", "--interval=300ms", "--first-level=3", f"--state={tmp_path}/state")

    def stop():
        if process.poll() is None:
            cluster.nodes("pkill", "-TERM", "-f", f"controller .*--state={tmp_path}/state")
        return process.wait(30)

    with log.open("wb") as file:
        process = subprocess.Popen(
            cluster.nodes.command(*words), env=cluster.nodes.environment, stdout=file, stderr=file
        )
    try:
        cluster.wait_for("the controller runs", lambda: "orders the jobs" in log.read_text())
        yield log.read_text, stop
        stop()
    finally:
        process.kill()
        process.wait()


def test_a_new_job_displaces_a_gang_that_had_more_and_the_gang_goes_on(cluster, controller, tmp_path):
    log, stop = controller
    long = cluster.submit(
        *("--nodes", "4", "--gpus", "2", "--gpu-memory", "16g", "-v", f"{tmp_path}:/c", IMAGE),
        *("sh", "-c", CHECKPOINTED),
    )
    cluster.wait_for("the gang begins", lambda: cluster.log(long).count("begins") == 4)
    # Eight GPUs have used up a level within half a second: it may fall past the next one between two looks.
    lower = re.compile(rf"job {long}: sitefactor=[1-7]50000\b")  # the first of the eight levels has 850000
    cluster.wait_for("it falls to a lower level", lambda: lower.search(log()))
    script = "until [ -e /c/said ]; do sleep 0.2; done; echo overtook"
    short = cluster.submit("--gpu-memory", "8g", "-v", f"{tmp_path}:/c", IMAGE, "sh", "-c", script)
    cluster.wait_for("the controller says why", lambda: f"convgpu: made room for job {short}" in log())
    (tmp_path / "said").touch()
    assert "overtook" in cluster.result(short)
    assert stop() == 0  # Slurm goes on without it
    assert cluster.result(long).count("goes on") == 4
    assert cluster.job(long)["restarts"] == 1
    cluster.wait_until_gone(long, short)


def test_memory_that_earlier_runs_needed_is_asked_for(cluster, controller):
    log, _stop = controller
    words = ("--gpu-memory", "8g", IMAGE, "gpu-hold", "2g")
    jobs = [cluster.submit(*words) for _ in range(3)]
    for job in jobs:
        cluster.result(job)
    # By then the controller has seen all three.
    learned = cluster.submit("--gpu-memory", "auto", IMAGE, "gpu-hold", "2g")
    cluster.wait_for("it asks for less", lambda: f"job {learned}: trespertask=gres/shard:3" in log())
    cluster.wait_for("Slurm knows", lambda: cluster.job(learned)["memory"] == 3 << 30)
    cluster.wait_for(
        "Slurm has the reason", lambda: "asks for 3GiB in place of a whole GPU" in cluster.job(learned)["why"]
    )
    second = cluster.nodes.run("convgpu", "slurm", "controller", "--state", state_of(log), check=False)
    assert "another controller runs with this file" in second.stderr


def state_of(log):
    """Return the state's file of the controller with this log."""
    return str(log.__self__.with_name("state"))
