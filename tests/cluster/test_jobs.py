"""Jobs on a real Slurm with four nodes: what they get, how they end, and that nothing of them is left."""

import itertools
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from four_nodes import BRIDGE
from serve import enter_script

pytestmark = pytest.mark.slurm

IMAGE = "convgpu/demo"
TRAINING = Path(__file__).with_name("train.pl")
STEPS = 100
# A program that obeys SIGTERM, as one that writes a checkpoint does.
OBEDIENT = 'trap "echo stopped; exit 0" TERM; echo run $CONVGPU_RESTART; sleep 600 & wait'


def test_a_job_has_its_share_of_one_card_and_no_more(cluster):
    within = cluster.submit("--gpu-memory", "5g", IMAGE, "gpu-hold", "4g")
    beyond = cluster.submit("--gpu-memory", "5g", IMAGE, "gpu-hold", "5g")
    assert f" {5 << 30}\n" in cluster.result(within)  # the driver shows the limit as the card's size
    cluster.wait_until(beyond, "failed")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in cluster.log(beyond)
    cluster.wait_until_gone(within, beyond)


def test_a_gang_gets_one_container_on_each_node_with_all_its_cards(cluster):
    tell = "env | grep -E 'PET_NODE_RANK|PET_NNODES|PET_NPROC|^MASTER_PORT' | sort | tr '\\n' ' '; echo"
    hold = "gpu-hold --device 0 3g >/dev/null && gpu-hold --device 1 3g >/dev/null && echo held"
    job = cluster.submit(
        *("--nodes", "2", "--gpus", "2", "--gpu-memory", "4g", IMAGE),
        *("sh", "-c", f"{tell}; {hold}; {OBEDIENT}"),
    )
    cluster.wait_for("both began", lambda: cluster.log(job).count("run 0") == 2)
    assert [name.rpartition("-")[0] for name in cluster.containers(job)] == [f"convgpu-{job}-0-n{n}" for n in (1, 2)]
    assert cluster.shares(job) == {"n1": [(0, 4), (1, 4)], "n2": [(2, 4), (3, 4)]}
    lines = sorted(line.strip() for line in cluster.log(job).splitlines() if "PET" in line)
    place = f"MASTER_PORT={20000 + job} PET_NNODES=2"
    assert lines == [f"{place} PET_NODE_RANK={rank} PET_NPROC_PER_NODE=2" for rank in (0, 1)]
    assert cluster.log(job).count("held") == 2
    cluster.nodes("convgpu", "cancel", str(job))
    cluster.wait_until_gone(job)


def test_a_gang_waits_until_all_of_it_can_start(cluster):
    """Three of four nodes are free: a gang of four holds nothing of them meanwhile."""
    first = cluster.submit("--gpus", "2", "--gpu-memory", "10g", IMAGE, "sh", "-c", OBEDIENT)
    cluster.wait_until_printed(first, "run 0")
    gang = cluster.submit("--nodes", "4", "--gpus", "2", "--gpu-memory", "10g", IMAGE, "sh", "-c", OBEDIENT)
    cluster.wait_until_explained(gang, "waits until its cards are free")
    assert (cluster.containers(gang), cluster.shares(gang)) == ([], {})
    cluster.nodes("convgpu", "cancel", str(first))
    cluster.wait_for("the gang runs", lambda: cluster.log(gang).count("run 0") == 4)
    assert len(cluster.containers(gang)) == 4


def test_shares_are_never_split_over_cards(cluster):
    """Two cards have 6 GiB free each: a share of 10 waits, and takes neither."""
    jobs = [cluster.submit("--gpu-memory", "10g", "--sbatch=--nodelist=n3", IMAGE, "sh", "-c", OBEDIENT) for _ in "ab"]
    for job in jobs:
        cluster.wait_until(job, "running")
    large = cluster.sbatch("--nodelist=n3", "--gres=shard:10", wrap="true")
    small = cluster.sbatch("--nodelist=n3", "--gres=gpumem:6000M", wrap="echo runs; sleep 600")
    cluster.wait_until_printed(small, "runs")
    assert (cluster.state(large), cluster.shares(large)) == ("pending", {})
    assert [size for _, size in cluster.shares(small)["n3"]] == [6]


def test_a_whole_card_is_shared_with_nobody(cluster):
    whole = cluster.submit("--gpus", "2", "--sbatch=--nodelist=n4", IMAGE, "sh", "-c", f"gpu-hold 15g; {OBEDIENT}")
    cluster.wait_until_printed(whole, "run 0")
    assert cluster.shares(whole) == {"n4": [(6, 16), (7, 16)]}
    part = cluster.submit("--gpu-memory", "1g", "--sbatch=--nodelist=n4", IMAGE, "true")
    cluster.wait_until_explained(part, "waits until its cards are free")
    cluster.nodes("convgpu", "cancel", str(whole))
    cluster.result(part)


def test_a_displaced_training_over_four_nodes_ends_as_one_process_would(cluster, tmp_path):
    """A short job takes cards of it: it gets SIGTERM, is queued again, and goes on from its checkpoint."""
    for name in ("c", "one", "four"):
        (tmp_path / name).mkdir()
    (tmp_path / "c/train.pl").write_text(TRAINING.read_text())
    long = cluster.submit(
        *("--nodes", "4", "--gpus", "2", "--gpu-memory", "16g", "-v", f"{tmp_path}/c:/c", IMAGE),
        *("perl", "/c/train.pl", str(STEPS), "/c", "0.05"),
    )
    cluster.wait_until_printed(long, "step 5 ")
    short = cluster.submit("--partition", "short", "--gpu-memory", "8g", IMAGE, "echo", "overtook")
    one, four = train(tmp_path / "one", 1), train(tmp_path / "four", 4)
    assert "overtook" in cluster.result(short)
    log = cluster.result(long)
    assert (log.count("goes on"), cluster.job(long)["restarts"]) == (4, 1)
    figures = read_training(tmp_path / "c")
    assert figures == four  # to the last bit
    assert figures == {name: pytest.approx(values, rel=1e-12) for name, values in one.items()}
    assert len(figures) == STEPS + 1
    cluster.wait_until_gone(long, short)


def test_a_job_on_a_bridge_is_held_to_its_share_of_the_network(cluster):
    """Both ends of its container's link have a token bucket; what it sent stands beside it when it has ended."""
    datagram = "send(S, q(x) x 1400, 0, sockaddr_in(9, inet_aton(q(GATE)))) for 1..100"
    send = f"perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 17); {datagram}'"
    gate = cluster.nodes.engine.inspect("network", BRIDGE, "{{(index .IPAM.Config 0).Gateway}}")
    words = ("--network", "2gbit", "--gpu-memory", "1g", "--net", BRIDGE, IMAGE)
    job = cluster.submit(*words, "sh", "-c", f"echo $MASTER_ADDR; {send.replace('GATE', gate)}; {OBEDIENT}")
    cluster.wait_until_printed(job, "run 0")
    (container,) = cluster.containers(job)
    assert cluster.log(job).startswith("127.0.0.1\n")  # its workers meet there: no other host has a part in it
    pid = cluster.nodes.engine.inspect("container", container, "{{.State.Pid}}")
    rates = [buckets("nsenter", "--target", pid, "--net"), buckets()]
    assert rates == [[2 * 10**9 // 8], [2 * 10**9 // 8]]
    assert "Network:" in cluster.nodes("convgpu", "inspect", container)
    cluster.nodes("convgpu", "cancel", str(job))
    cluster.wait_until_gone(job)
    cluster.wait_for("it is measured", lambda: (cluster.job(job)["network_sent"] or 0) > 100 * 1400)
    assert cluster.job(job)["network"] == 2 * 10**9


def test_on_the_hosts_network_a_share_is_counted_and_said_to_be_no_more(cluster):
    told = cluster.nodes.run(
        "convgpu", "submit", "--network", "60gbit", "--gpu-memory", "1g", IMAGE, "sh", "-c", OBEDIENT
    )
    job = int(told.stdout.split()[1].rstrip(":"))
    assert told.stderr == (
        "convgpu: the 60 Gbit/s are counted, and nothing holds the job to them on the host's network; "
        "--net bridge does\n"
    )
    cluster.wait_until_printed(job, "run 0")
    why = "60 Gbit/s are counted, and nothing holds the container to them: it is on the host's network"
    assert why in cluster.log(job)
    elsewhere = cluster.submit("--network", "60gbit", "--gpu-memory", "1g", "--sbatch=--exclude=n[2-4]", IMAGE, "true")
    assert cluster.state(elsewhere) == "pending"


def buckets(*enter):
    """Return the rates of the token buckets in a network namespace, in bytes a second."""
    told = subprocess.run([*enter, "tc", "-json", "qdisc", "show"], check=True, capture_output=True, text=True)
    return [row["options"]["rate"] for row in json.loads(told.stdout) if row["kind"] == "tbf"]


def train(folder, size):
    """Train here, without Slurm and containers; return the figures."""
    environment = os.environ | {"PET_NNODES": str(size), "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "19999"}
    processes = [
        subprocess.Popen(
            ["perl", str(TRAINING), str(STEPS), str(folder), "0"],
            env=environment | {"PET_NODE_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(size)
    ]
    assert [process.wait(60) for process in processes] == [0] * size
    return read_training(folder)


def read_training(folder):
    """Return the loss of each step, and the weights; a step that was made twice fails."""
    words = [line.split() for line in (folder / "figures").read_text().splitlines()]
    rows = [(" ".join(row[:-1]), float(row[-1])) for row in words if row[0] == "step"]
    rows += [(row[0], [float(word) for word in row[1:]]) for row in words if row[0] == "weights"]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


@pytest.fixture
def _impatient(cluster):
    """A program has two seconds from SIGTERM to SIGKILL; elsewhere it has enough for a checkpoint on a busy machine."""
    settings, configuration = (cluster.nodes.folder / "etc" / name for name in ("convgpu.json", "convgpu.conf"))
    before = settings.read_text(), configuration.read_text()

    def choose(grace, killing):
        settings.write_text(grace)
        configuration.write_text(killing)
        cluster.nodes("scontrol", "reconfigure")

    choose(json.dumps({**json.loads(before[0]), "grace": 2}), re.sub(r"KillWait=\d+", "KillWait=2", before[1]))
    assert "= 2 sec" in next(
        line for line in cluster.nodes("scontrol", "show", "config").splitlines() if "KillWait" in line
    )
    yield
    choose(*before)


@pytest.mark.usefixtures("_impatient")
def test_a_program_that_ignores_the_signal_is_removed_all_the_same(cluster):
    """After the grace the step is killed, and docker's client with it; the Epilog removes the container."""
    job = cluster.submit("--gpu-memory", "1g", IMAGE, "sh", "-c", 'trap "" TERM; echo runs; sleep 600')
    cluster.wait_until_printed(job, "runs")
    cluster.nodes("convgpu", "cancel", str(job))
    cluster.wait_until_gone(job)


def test_a_container_that_is_killed_ends_its_job(cluster):
    job = cluster.submit("--gpu-memory", "1g", IMAGE, "sh", "-c", OBEDIENT)
    cluster.wait_until_printed(job, "run 0")
    cluster.nodes.engine("kill", cluster.containers(job)[0])
    cluster.wait_until(job, "failed")
    cluster.wait_until_gone(job)


def test_one_container_of_a_gang_that_fails_ends_the_gang(cluster):
    fail = 'if [ "$PET_NODE_RANK" = 1 ]; then exit 3; fi; ' + OBEDIENT
    job = cluster.submit("--nodes", "2", "--gpu-memory", "1g", IMAGE, "sh", "-c", fail)
    cluster.wait_until(job, "failed")
    cluster.wait_until_gone(job)


def test_bandwidth_is_counted(cluster):
    words = ("--network", "60gbit", "--gpu-memory", "1g", "--sbatch=--nodelist=n1", IMAGE, "sh", "-c", OBEDIENT)
    first, second = cluster.submit(*words), cluster.submit(*words)
    cluster.wait_until_printed(first, "run 0")
    assert (cluster.state(second), cluster.shares(second)) == ("pending", {})
    cluster.nodes("convgpu", "cancel", str(first))
    cluster.wait_until_printed(second, "run 0")


def test_nodes_at_one_switch_are_waited_for_and_not_for_ever(cluster):
    """n1 and n2 are at one switch, n3 and n4 at another; of each pair one node is taken."""
    for node in ("n1", "n3"):
        taken = cluster.submit("--gpus", "2", f"--sbatch=--nodelist={node}", IMAGE, "sh", "-c", OBEDIENT)
        cluster.wait_until(taken, "running")
    gang = cluster.submit("--nodes", "2", "--gpus", "2", "--near", "3s", IMAGE, "true")
    assert cluster.state(gang) == "pending"
    cluster.result(gang)
    assert cluster.job(gang)["nodes"] == "n[2,4]"


def test_plain_scripts_of_sbatch_and_srun_work(cluster):
    hold = f"convgpu job {IMAGE} gpu-hold 2g"
    batch = cluster.sbatch("--gres=gpumem:3G", wrap=f"{hold} && {hold}")  # one after the other
    step = cluster.nodes("srun", "--gres=gpumem:3000M", "convgpu", "job", IMAGE, "gpu-hold", "2g")
    assert cluster.result(batch).count(f" {3 << 30}\n") == 2
    assert f" {3 << 30}\n" in step
    assert "convgpu: 3 GiB of one GPU for each task" in cluster.nodes.run("srun", "--gres=gpumem:3G", "true").stderr


def test_options_that_users_of_pyxis_know(cluster, tmp_path):
    (tmp_path / "data").write_text("content")
    (tmp_path / "scratch").mkdir()
    words = ["--container-image", IMAGE, f"--container-mounts={tmp_path}:/in:ro,{tmp_path}/scratch:/out"]
    words += ["--container-workdir=/in", "--container-env=CHOSEN"]
    job = cluster.nodes.run(
        "convgpu", "submit", "--json", "--gpu-memory", "1g", *words, "--", "cat", "data", CHOSEN="x"
    )
    assert "content" in cluster.result(int(json.loads(job.stdout)["job"]))


def test_what_users_see_of_their_jobs(cluster):
    job = cluster.submit("--gpu-memory", "2g", "--name", "train", IMAGE, "sh", "-c", f"echo hello; {OBEDIENT}")
    cluster.wait_until_printed(job, "run 0")
    head, row = cluster.nodes("convgpu", "jobs").splitlines()
    assert head.split() == ["JOB", "NAME", "USER", "STATE", "GPUS", "MEMORY", "NODES", "TIME", "WHY"]
    assert row.split()[:7] == [str(job), "train", "root", "running", "1", "2GiB", "n1"]
    assert cluster.nodes("convgpu", "logs", str(job)) == "hello\nrun 0"
    assert cluster.nodes("convgpu", "cancel", str(job)) == f"job {job}: cancelled"
    followed = cluster.nodes("convgpu", "logs", "-f", str(job))
    assert "stopped" in followed
    assert "cancelled" in cluster.nodes("convgpu", "jobs", "--all")
    assert cluster.nodes("convgpu", "jobs", "--watch", str(job)).splitlines()[-1].split()[3] == "cancelled"


def test_the_cluster_is_as_it_has_to_be(cluster):
    assert cluster.nodes("convgpu", "slurm", "check").splitlines() == [
        "ok    slurm     version, job_submit.lua, selection, Prolog and Epilog are as they have to be",
        "ok    nodes     4 nodes with 8 GPUs, each in shards of 1GiB",
    ]


@pytest.fixture
def lua(cluster):
    """Replaces job_submit.lua, and brings ours back."""
    path = cluster.nodes.folder / "etc/job_submit.lua"
    ours, written = path.read_text(), path.stat().st_mtime
    turns = itertools.count(2, 2)

    def replace(text: str) -> None:
        """Write it with a later second: by that slurmctld sees that it is another one."""
        path.write_text(text)
        later = written + next(turns)
        os.utime(path, (later, later))

    replace.ours = ours
    yield replace
    replace(ours)
    # Slurm reads it at the next request, and the tests behind this one need ours.
    assert "convgpu: 1 GiB" in cluster.nodes.run("sbatch", "--test-only", "--gres=gpumem:1G", "--wrap=true").stderr


def test_a_job_submit_lua_of_another_is_noticed(cluster, lua):
    lua(
        "function slurm_job_submit() return slurm.SUCCESS end\n"
        "function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"
    )
    done = cluster.nodes.run("convgpu", "slurm", "check", check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("fail  slurm     Slurm's job_submit.lua is not ConvGPU's: shares would be split\n")


def test_gangs_are_refused_where_more_is_promised_than_the_cards_have(cluster, lua):
    lua(lua.ours.replace("local OVERSUBSCRIBED = false", "local OVERSUBSCRIBED = true"))
    words = ("convgpu", "submit", "--gpu-memory", "2g")
    refused = cluster.nodes.run(*words, "--nodes", "2", IMAGE, "true", check=False)
    assert "no gangs on shared cards here" in refused.stderr
    cluster.nodes(*words, "--sbatch=--hold", IMAGE, "true")
    cluster.nodes("convgpu", "submit", "--gpus", "2", "--nodes", "2", "--sbatch=--hold", IMAGE, "true")


def test_the_script_by_which_people_enter_the_cluster(cluster, tmp_path):
    enter = tmp_path / "enter"
    enter.write_text(enter_script(cluster.nodes))
    enter.chmod(0o700)
    told = subprocess.check_output([enter, "sh", "-c", "pwd; sinfo -h -o %D"], cwd=tmp_path, text=True)
    assert told.split() == [str(tmp_path), "4"]


def test_what_a_running_job_does_not_need_is_learned_until_it_needs_more(cluster, tmp_path):
    wait = "until [ -e /c/go ]; do sleep 0.1; done"
    hold = f"(sleep 600 | gpu-hold --wait-for-stdin 1g) & {wait}; gpu-hold 5g && echo had more"
    job = cluster.submit("--gpu-memory", "8g", "-v", f"{tmp_path}:/c", IMAGE, "sh", "-c", hold)

    def learned():
        rows = cluster.nodes.engine.administration("convgpu", "/v1/containers")["containers"]
        return [share["learned"] for row in rows for share in row["devices"]]

    cluster.wait_for("the peak is learned", lambda: any(size and size < 2 << 30 for size in learned()))
    (tmp_path / "go").touch()
    assert "had more" in cluster.result(job)
    cluster.wait_until_gone(job)


def test_a_job_that_stays_above_its_limit_ends_with_the_reason(cluster):
    """The program escapes the hook as only root of the host can; the driver counts it nonetheless."""
    job = cluster.submit("--gpu-memory", "2g", IMAGE, "sh", "-c", "echo begins; sleep 600")
    cluster.wait_until_printed(job, "begins")
    [container] = cluster.containers(job)
    pid = cluster.nodes.engine("inspect", "--format={{.State.Pid}}", container)
    subprocess.run(["nsenter", "--target", pid, "--mount", "--pid", "umount", "/etc/ld.so.preload"], check=True)
    hold = "sleep 600 | gpu-hold --wait-for-stdin 3g"
    cluster.nodes.engine("exec", "--detach", "--env=LD_PRELOAD=", container, "sh", "-c", hold)
    cluster.wait_until(job, "failed")
    cluster.wait_until_gone(job)
    reason = r"ended on n\d: it held 3\.\d+GiB of a GPU, more than its 2GiB"
    cluster.wait_for("the reason is there", lambda: re.fullmatch(reason, str(cluster.job(job)["why"])))
