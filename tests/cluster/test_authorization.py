"""`require = "slurm"`: GPUs of a node by Docker itself, past the job or beyond its share. None gets through."""

import json

import pytest

pytestmark = pytest.mark.slurm

IMAGE = "convgpu/demo"
GIB = 1 << 30
RUNS = 'trap "exit 0" TERM; echo runs; sleep 600 & wait'


def volume(memory):
    return f"--mount=type=volume,volume-driver=convgpu,{memory},dst=/run/convgpu"


def limit(uuid, size):
    return volume(f'"volume-opt=memory={uuid}:{size}"')


def docker(cluster, *words):
    """Start a container as somebody who may use the Engine's socket; return what stderr says."""
    preload = ("-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so")
    done = cluster.nodes.engine.run("run", "--network=none", *preload, *words, IMAGE, "true", check=False)
    return done.stderr if done.returncode else "started"


def remove_ended(cluster):
    """Remove what `docker` left: without --rm, because docker waits for ever where a start is refused."""
    left = cluster.nodes.engine("ps", "-aq", "--filter=status=created", "--filter=status=exited").split()
    cluster.nodes.engine("rm", "-v", *left)


@pytest.fixture
def uuids(cluster):
    """The UUIDs of all cards, by number."""
    rows = cluster.nodes.engine.administration("convgpu", "/v1/devices")["devices"]
    return [row["uuid"] for row in sorted(rows, key=lambda row: row["index"])]


def test_no_gpu_past_the_jobs(cluster, uuids):
    job = cluster.submit("--gpu-memory", "4g", IMAGE, "sh", "-c", RUNS)
    cluster.wait_until_printed(job, "runs")
    ended = cluster.submit("--gpu-memory", "4g", IMAGE, "true")
    cluster.result(ended)
    mine = f"--label=convgpu.job={job}"
    none = "slurm-job: the GPUs of this host belong to jobs of Slurm, and this container to none."
    more = f"is more than job {job} may have there: 4GiB"
    refused = {
        "no job": ((limit(uuids[0], "1g"),), none),
        "no job, any card": ((volume("volume-opt=memory=1g"),), none),
        "an empty label": (("--label=convgpu.job=", limit(uuids[0], "1g")), none),
        "an ended job": (
            (f"--label=convgpu.job={ended}", limit(uuids[0], "1g")),
            f"slurm-job: no job {ended} runs on this host",
        ),
        "no id": (("--label=convgpu.job=*", limit(uuids[0], "1g")), "slurm-job: no job * runs on this host"),
        "another card": ((mine, limit(uuids[1], "1g")), f"slurm-job: {uuids[1]} is no GPU of job {job}"),
        "another node's card": ((mine, limit(uuids[7], "1g")), f"slurm-job: {uuids[7]} is no GPU of job {job}"),
        "more than the share": ((mine, limit(uuids[0], "5g")), more),
        "beside the job's own": ((mine, limit(uuids[0], "1g")), f"{more}, of which its containers have 4GiB"),
        "any card": ((mine, volume("volume-opt=memory=1g"), "-e", "CONVGPU_GPUS=all"), "slurm-job: "),
        "by a variable": ((mine, volume("volume-opt=gpus=0"), "-e", "CONVGPU_MEMORY=5g"), more),
        "two labels": ((mine, f"--label=convgpu.job={ended}", limit(uuids[0], "1g")), "slurm-job: no job"),
        "no limit": ((mine, "--gpus=all"), "gpu-needs-limit"),
        "no limit and no job": (("--gpus=all",), "Type: convgpu submit --gpu-memory 2g IMAGE COMMAND, or in a job"),
    }
    for name, (words, text) in refused.items():
        assert text in docker(cluster, *words), name
    assert docker(cluster, "--label=x=y") == "started"  # without a GPU nobody asks
    remove_ended(cluster)


def test_several_containers_of_a_job_share_what_it_has(cluster, tmp_path):
    """The two that fit start one after the other; `convgpu job` itself asks for all."""
    script = f"""set -e
share=$(echo {cluster.nodes.jobs}/$SLURM_JOB_ID.*.json)
uuid=$(grep -o 'GPU-[^"]*' $share)
start() {{ docker run -d --network none --stop-signal KILL \\
    --label convgpu.job=$SLURM_JOB_ID --label convgpu.node=$SLURMD_NODENAME -e LD_PRELOAD=/run/convgpu/libconvgpu.so \\
    --mount "type=volume,volume-driver=convgpu,\\"volume-opt=memory=$uuid:$1\\",dst=/run/convgpu" {IMAGE} sleep 600; }}
start 2g; start 2g
if start 1g; then exit 1; fi
echo all as it has to be; sleep 600
"""
    path = tmp_path / "job.sh"
    path.write_text(script)
    job = int(
        cluster.nodes("sbatch", "--parsable", "--output=convgpu-%j.log", "--gres=gpumem:4G", "--wrap", f"bash {path}")
    )
    cluster.wait_until_printed(job, "all as it has to be")
    assert "may have there: 4GiB, of which its containers have 4GiB" in cluster.log(job)
    cluster.nodes("convgpu", "cancel", str(job))
    cluster.wait_until_gone(job)  # its containers did not end by themselves: the Epilog removed them


def test_a_jobs_file_says_what_slurm_said(cluster):
    job = cluster.sbatch(
        *("--gres=gpumem:3G", "-n2", "-N1", "-w", "n2", "--job-name", 'x" GRES=shard:99'), wrap="echo runs; sleep 600"
    )
    cluster.wait_until_printed(job, "runs")  # one that is cancelled before it runs is waited for as long as KillWait
    path = cluster.nodes.jobs / f"{job}.n2.json"
    share = json.loads(path.read_text())
    assert {**share, "cards": sorted(share["cards"].values())} == {
        "job": job,
        "node": "n2",
        "user": 0,
        "restarts": 0,
        "fault": "",
        "network": 0,
        "cards": [3 * GIB, 3 * GIB],
    }
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o644, 0o755)
