"""From a request to the words of sbatch and the script; and requests that no wait can serve."""

import pytest

from convgpu.cluster.request import ImpossibleError, Submission, batch_script, check_fits, clock_time, sbatch_words
from convgpu.cluster.shares import NodeSize

GIB = 1 << 30
NODES = [NodeSize("n1", 2, 16, 25), NodeSize("n2", 2, 16, 10), NodeSize("n3", 1, 80), NodeSize("login", 0, 0)]


def asked(**fields):
    return Submission(("-v", "/a b:/d", "image", "python", "train.py"), **fields)


def test_a_share_is_asked_for_by_task():
    words = sbatch_words(asked(memory=20 * GIB + 1, cards=2, nodes=3, time="04:00:00"), GIB)
    assert words == [
        "--job-name=convgpu",
        "--output=convgpu-%j.log",
        "--open-mode=append",
        "--nodes=3",
        "--ntasks=6",
        "--ntasks-per-node=2",
        "--tres-per-task=gres/shard:21",
        "--time=04:00:00",
        "--requeue",
    ]


def test_whole_cards_are_asked_for_by_node():
    words = sbatch_words(asked(cards=8, nodes=2, network=5, near=600, partition="dl", cpus=4, requeue=False), GIB)
    assert words[3:] == [
        *("--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--gres=gpu:8,net:5", "--switches=1@00:10:00"),
        *("--partition=dl", "--cpus-per-task=4", "--no-requeue"),
    ]


def test_the_script_keeps_every_word():
    script = batch_script(asked(), "image")
    assert script.endswith("exec convgpu job -v '/a b:/d' image python train.py\n")


def test_a_gang_starts_when_all_nodes_have_the_image():
    lines = batch_script(asked(nodes=2), "image").splitlines()
    pull, start = (
        next(i for i, line in enumerate(lines) if text in line)
        for text in ("job --pull-only image || exit", "convgpu job -v '/a b:/d' image python train.py &")
    )
    assert pull < start


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"cards": 3}, "no node has more than 2 GPUs: type --nodes 2 --gpus 2 for as many over nodes"),
        (
            {"cards": 3, "nodes": 3},
            "no node has more than 2 GPUs: type --nodes 2 --gpus 2, which is all there is",
        ),
        ({"memory": 81 * GIB}, "no GPU of the cluster has 81GiB: type --gpu-memory 80g, or less"),
        ({"memory": 17 * GIB, "cards": 2}, "no GPU of the cluster has 17GiB: type --gpu-memory 16g, or less"),
        ({"memory": 17 * GIB, "nodes": 2}, "only 1 nodes can run such a job: type --nodes 1, or fewer"),
        ({"network": 26}, "no such node has 26 Gbit/s: type --network 25gbit, or less"),
        ({"network": 1, "nodes": 3}, "only 2 nodes can run such a job: type --nodes 2, or fewer"),
        (
            {"network": 1, "memory": 80 * GIB},
            "Slurm counts no network here: leave out --network, or on each node: convgpu slurm setup --network 25gbit",
        ),
        ({"nodes": 4}, "only 3 nodes can run such a job: type --nodes 3, or fewer"),
    ],
)
def test_what_would_wait_for_ever_is_refused_with_what_to_type(fields, text):
    with pytest.raises(ImpossibleError) as refused:
        check_fits(asked(**fields), NODES, GIB)
    assert str(refused.value) == text


def test_clusters_without_cards_or_shares_are_named():
    with pytest.raises(ImpossibleError, match="no node of the cluster has GPUs"):
        check_fits(asked(), [NodeSize("login", 0, 0)], GIB)
    with pytest.raises(ImpossibleError, match="does not share its GPUs: leave out --gpu-memory"):
        check_fits(asked(memory=GIB), [NodeSize("n1", 4, 0)], GIB)


def test_what_fits_is_accepted():
    for fields in ({"memory": 80 * GIB}, {"memory": 16 * GIB, "cards": 2, "nodes": 2}, {"cards": 1, "nodes": 3}):
        check_fits(asked(**fields), NODES, GIB)


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00:00"), (14_400, "04:00:00"), (90_061, "25:01:01")])
def test_times_are_slurms(seconds, text):
    assert clock_time(seconds) == text
