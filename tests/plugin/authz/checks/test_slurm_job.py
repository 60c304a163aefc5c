"""The rule slurm-job: GPU containers belong to jobs of Slurm, and stay within their shares."""

import pytest

from convgpu.authz.facts.job_files import JobFiles
from convgpu.authz.site.rules import RulesError, parse_rules
from convgpu.cluster.node_job import NodeJob

GIB = 1 << 30
SHARES = {"7": [NodeJob(7, "n1", 1000, 0, {"GPU-1": 4 * GIB})], "8": [NodeJob(8, "n1", 1000, 0, {"GPU-2": 4 * GIB})]}
RULES = parse_rules('require = "slurm"')


class Jobs:
    """The jobs that run on this host."""

    def shares(self, job):
        return SHARES.get(job, ())


@pytest.fixture
def site(harness):
    harness.rules = RULES
    harness.jobs = Jobs()
    return harness


def asked(memory="GPU-1:4g", *, job="7", **host):
    """Return the request for a container with a volume of ours."""
    options = {"memory": memory} if memory else {}
    mount = {"Type": "volume", "Target": "/run/convgpu", "VolumeOptions": {"DriverConfig": {"Name": "convgpu"}}}
    mount["VolumeOptions"]["DriverConfig"]["Options"] = options
    return {
        "Image": "image",
        "Labels": {"convgpu.job": job} if job else {},
        "Env": ["LD_PRELOAD=/run/convgpu/libconvgpu.so"],
        "HostConfig": {"Mounts": [mount], "DeviceRequests": [{"Count": -1}], **host},
    }


def test_a_container_without_a_gpu_needs_no_job(site):
    """With the runtime as the default one, no container without a job was started."""
    assert site.judge({"Image": "image", "HostConfig": {"Runtime": "convgpu"}}).rule == "no-gpu"
    wanted = {"Image": "image", "Env": ["CONVGPU_MEMORY=1g"], "HostConfig": {"Runtime": "convgpu"}}
    assert site.judge(wanted).rule == "slurm-job"


def existing(limit, *, job="7", volume="v1", identity="c1"):
    """Return what the Engine says of a container whose volume has a limit on GPU-1."""
    return limit, {
        "Id": identity,
        "State": {"Status": "created"},
        "Config": {
            "Image": "image",
            "Labels": {"convgpu.job": job} if job else {},
            "Env": ["LD_PRELOAD=/run/convgpu/libconvgpu.so"],
        },
        "HostConfig": {"DeviceRequests": [{"Count": -1}]},
        "Mounts": [{"Type": "volume", "Name": volume, "Destination": "/run/convgpu", "Driver": "convgpu"}],
    }


def start(site, limit, document, volume="v1"):
    site.scheduler.limits[volume] = limit
    return site.start(document)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            asked(job=""),
            "slurm-job: the GPUs of this host belong to jobs of Slurm, and this container to none.\nType: ",
        ),
        (asked(job="9"), "slurm-job: no job 9 runs on this host: it has ended, or never was here.\n"),
        (asked(job="7x"), "slurm-job: no job 7x runs on this host"),
        (asked("GPU-2:1g"), "slurm-job: GPU-2 is no GPU of job 7, which has GPU-1.\n"),
        (asked("GPU-1:5g"), "slurm-job: 5GiB on GPU-1 is more than job 7 may have there: 4GiB.\n"),
        (asked("GPU-1:1g,GPU-2:1g"), "slurm-job: GPU-2 is no GPU of job 7"),
        (asked("GPU-1:4g", job="8"), "slurm-job: GPU-1 is no GPU of job 8"),
    ],
)
def test_what_is_refused_at_create(site, body, text):
    verdict = site.judge(body)
    assert not verdict.allow
    assert verdict.message.startswith(text)


def test_what_passes_at_create(site):
    assert site.judge(asked()).allow
    assert site.judge(asked("2g")).allow  # on which GPU is known when it starts
    assert site.judge({"Image": "image", "HostConfig": {}}).allow


def test_a_gpu_without_a_volume_is_still_refused_for_its_missing_limit(site):
    verdict = site.judge({"Image": "image", "HostConfig": {"DeviceRequests": [{"Count": -1}]}})
    assert verdict.rule == "gpu-needs-limit"
    assert "Type: convgpu submit --gpu-memory 2g IMAGE COMMAND, or in a job: convgpu job IMAGE" in verdict.message


def test_a_start_is_judged_by_the_limit_that_the_scheduler_holds(site):
    assert start(site, *existing(4 * GIB)).allow
    verdict = start(site, *existing(4 * GIB + 1))
    assert verdict.message.startswith("slurm-job: 4GiB on GPU-1 is more than job 7 may have there: 4GiB.\n")
    assert start(site, *existing(GIB, job="8")).rule == "slurm-job"
    assert start(site, *existing(GIB, job="")).rule == "slurm-job"


def test_the_containers_of_a_job_share_what_it_has(site):
    assert start(site, *existing(3 * GIB)).allow
    site.scheduler.running.add("v1")
    limit, second = existing(2 * GIB, volume="v2", identity="c2")
    verdict = start(site, limit, second, "v2")
    assert (
        "2GiB on GPU-1 is more than job 7 may have there: 4GiB, of which its containers have 3GiB." in verdict.message
    )
    site.scheduler.running.clear()
    site.scheduler.since["v1"] = site.now
    assert start(site, limit, second, "v2").allow


def test_without_the_rule_no_job_is_needed(harness):
    harness.jobs = Jobs()
    assert harness.judge(asked(job="")).allow


def test_an_exemption_lifts_it(site):
    site.rules = parse_rules('require = "slurm"\n[[exempt]]\nimage = "image"\nrules = ["slurm-job"]\n')
    assert site.judge(asked(job="")).allow


def test_a_service_is_no_job(site):
    task = {"ContainerSpec": {**asked(), "Mounts": asked()["HostConfig"]["Mounts"]}}
    verdict = site.judge({"TaskTemplate": task}, "/v1.41/services/create")
    assert verdict.message.startswith("slurm-job: a service of Swarm is no job of Slurm.")


def test_another_word_is_refused_with_its_line():
    with pytest.raises(RulesError, match="line 1: require: Input should be 'nothing' or 'slurm'"):
        parse_rules('require = "kubernetes"')


def test_files_of_jobs(tmp_path):
    folder = tmp_path / "jobs"
    files = JobFiles(folder)
    assert list(files.shares("7")) == []
    folder.mkdir()
    (folder / "7.n1.json").write_text('{"job":7,"node":"n1","user":1000,"restarts":0,"cards":{"GPU-1":4294967296}}')
    (folder / "7.n2.json").write_text("{")
    (folder / "77.n1.json").write_text("{}")
    assert list(files.shares("7")) == SHARES["7"]
    for text in ("", "*", "7*", "../7", "\u0667", "8"):
        assert list(files.shares(text)) == []
