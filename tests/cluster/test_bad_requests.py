"""What goes wrong for people, on a real Slurm: a line or two that say what to type, and nothing is left behind."""

import os
import re

import pytest

pytestmark = pytest.mark.slurm

# What is typed; what stderr says; the exit status. What is refused before Slurm is asked stands in tests/plugin/cli/
# cluster, and other sizes that the cluster has not in tests/scheduler/cluster/test_request.py.
REFUSED = {
    "a size that no card has": (
        ("convgpu", "submit", "--gpu-memory", "17g", "image", "true"),
        "Error: no GPU of the cluster has 17GiB: type --gpu-memory 16g, or less",
        1,
    ),
    "an unknown partition": (
        ("convgpu", "submit", "--partition", "batsh", "image", "true"),
        "Error: there is no partition 'batsh'. Did you mean batch?",
        1,
    ),
    "more bandwidth than any node": (
        ("convgpu", "submit", "--network", "101gbit", "image", "true"),
        "Error: no such node has 101 Gbit/s: type --network 100gbit, or less",
        1,
    ),
    "a job that Slurm does not know": (
        ("convgpu", "logs", "999999"),
        "Error: Slurm knows no job 999999; it forgets ended ones after a while.",
        1,
    ),
    "a container outside of a job": (("convgpu", "job", "image", "true"), "Error: this is no job of Slurm.", 1),
    "an unreadable size in plain Slurm": (
        ("sbatch", "--gres=gpumem:20Q", "--wrap=true"),
        "convgpu: write GPU memory as --gres=gpumem:20G (whole GiB), or as gpumem:20000M",
        1,
    ),
    "a size that no card has in plain Slurm": (
        ("sbatch", "--gres=gpumem:17G", "--wrap=true"),
        "convgpu: no GPU here has 17 GiB: type --gres=gpumem:16384M, or less",
        1,
    ),
    "shards in no form": (
        ("sbatch", "--gres=shard:1:2:3", "--wrap=true"),
        "convgpu: write GPU memory as --gres=gpumem:20G (whole GiB), or as gpumem:20000M",
        1,
    ),
    "an option that sbatch does not know": (
        ("convgpu", "submit", "--sbatch=--nonsense", "image", "true"),
        "Error: unrecognized option '--nonsense'",
        1,
    ),
    "a job array": (
        ("sbatch", "--array=1-3", "--gres=gpumem:1G", "--wrap=true"),
        "convgpu: no job arrays with GPU memory: submit one job for each value",
        1,
    ),
    "a heterogeneous job": (
        ("srun", "--gres=gpumem:1G", "true", ":", "--gres=gpumem:1G", "true"),
        "convgpu: no heterogeneous jobs with GPU memory",
        1,
    ),
    "by node and by task": (
        ("sbatch", "-n1", "--gres=gpumem:1G", "--tres-per-task=gres/shard:1", "--wrap=true"),
        "convgpu: ask for GPU memory by node (--gres) or by task (--tres-per-task), not by both",
        1,
    ),
    "whole cards and shares": (
        ("sbatch", "--gres=gpumem:1G,gpu:1", "--wrap=true"),
        "convgpu: ask for whole cards (--gres=gpu:2) or for memory of shared ones",
        1,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_at_submit(cluster, name):
    words, text, status = REFUSED[name]
    done = cluster.nodes.run(*words, check=False)
    assert text in done.stderr
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert cluster.nodes("squeue", "-h") == ""


def test_an_image_that_cannot_be_pulled_ends_the_job_with_a_line(cluster):
    for options in ((), ("--nodes", "2")):
        job = cluster.submit(*options, "--gpu-memory", "1g", "localhost:1/none", "true")
        cluster.wait_until(job, "failed")
        # The first node that fails ends the others' tasks, and on two nodes either may be the first.
        assert re.search(r"Error: the image localhost:1/none cannot be pulled on n[12]: ", cluster.log(job))
        assert "Is the name right (REGISTRY/NAME:TAG)?" in cluster.log(job)


def test_a_job_without_cards_is_told_what_to_ask_for(cluster):
    job = cluster.sbatch(wrap="convgpu job convgpu/demo true")
    cluster.wait_until(job, "failed")
    assert f"Error: job {job} has no GPU on n1.\nType: --gres=gpumem:8G, or --gres=gpu:1 (whole)" in cluster.log(job)


def test_a_job_that_has_ended_cannot_be_cancelled(cluster):
    job = cluster.submit("--gpu-memory", "1g", "convgpu/demo", "true")
    cluster.result(job)
    done = cluster.nodes.run("convgpu", "cancel", str(job), check=False)
    assert f"Error: job {job} has ended already (completed).\nSee: convgpu logs {job}" in done.stderr


def test_without_the_controller_one_line_says_so(cluster):
    folder = cluster.nodes.folder
    (folder / "away.conf").write_text(
        "ClusterName=away\nSlurmctldHost=head(127.0.0.1)\nSlurmctldPort=1\n"
        f"AuthInfo=socket={folder}/munge/socket\nMessageTimeout=1\n"
    )
    done = cluster.nodes.run("convgpu", "jobs", check=False, SLURM_CONF=str(folder / "away.conf"))
    assert (done.returncode, done.stderr) == (
        3,
        "Error: Slurm's controller does not answer.\nSee: scontrol ping\n",
    )


SUBMIT = ("convgpu", "submit", "--gpu-memory", "1g", "convgpu/demo", "true")


@pytest.fixture
def _without_lua(cluster):
    """Slurm as the administrator set it up before ConvGPU: it asks no job_submit.lua."""
    path = cluster.nodes.folder / "etc/convgpu.conf"
    before = path.read_text()
    path.write_text(before.replace("JobSubmitPlugins=lua", ""))
    cluster.nodes("scontrol", "reconfigure")
    yield
    path.write_text(before)
    cluster.nodes("scontrol", "reconfigure")


@pytest.mark.usefixtures("_without_lua")
def test_slurm_without_our_lua_is_refused_at_submit_and_noticed_by_the_check(cluster):
    line = "Slurm does not ask job_submit.lua: `convgpu slurm setup`, Include convgpu.conf, restart slurmctld"
    done = cluster.nodes.run(*SUBMIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {line}\n")
    check = cluster.nodes.run("convgpu", "slurm", "check", check=False)
    assert (check.returncode, check.stdout) == (1, f"fail  slurm     {line}\n")
    assert cluster.nodes("squeue", "-h") == ""


def test_a_slurm_that_is_too_old_is_refused_at_submit_and_noticed_by_the_check(cluster, tmp_path):
    """Its commands say the version; those of Ubuntu 24.04 say this one."""
    wrapper = tmp_path / "scontrol"
    wrapper.write_text('#!/bin/sh\n/usr/bin/scontrol "$@" | sed "s/^SLURM_VERSION .*/SLURM_VERSION = 23.11.4/"\n')
    wrapper.chmod(0o755)
    search = f"{tmp_path}{os.pathsep}{cluster.nodes.environment['PATH']}"
    line = "Slurm is version 23.11.4; ConvGPU needs 24.05 or newer: Debian 13 has 24.11"
    done = cluster.nodes.run(*SUBMIT, check=False, PATH=search)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {line}\n")
    check = cluster.nodes.run("convgpu", "slurm", "check", check=False, PATH=search)
    assert (check.returncode, check.stdout) == (1, f"fail  slurm     {line}\n")
    assert cluster.nodes("squeue", "-h") == ""
