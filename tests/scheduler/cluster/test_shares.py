"""Bytes and shards: what Slurm counts, and how it prints it."""

import pytest

from convgpu.cluster.allotment import read_portion
from convgpu.cluster.shares import Card, NodeSize, gres_lines, node_gres, node_size, shards_for

GIB = 1 << 30
CARDS = [Card("GPU-a", "/dev/nvidia0", 80 * GIB), Card("GPU-b", "/dev/nvidia3", 80 * GIB - 1)]


@pytest.mark.parametrize(("size", "shards"), [(1, 1), (GIB, 1), (GIB + 1, 2), (20 * GIB, 20)])
def test_a_share_holds_what_was_asked_for(size, shards):
    assert shards_for(size, GIB) == shards


def test_each_card_has_its_own_count():
    assert gres_lines("n1", CARDS, GIB) == [
        "NodeName=n1 Name=gpu File=/dev/nvidia0",
        "NodeName=n1 Name=gpu File=/dev/nvidia3",
        "NodeName=n1 Name=shard Count=80 File=/dev/nvidia0",
        "NodeName=n1 Name=shard Count=79 File=/dev/nvidia3",
    ]
    assert node_gres(CARDS, GIB) == "gpu:2,shard:159"
    assert node_gres(CARDS, 4 * GIB, threshold=1.5) == "gpu:2,shard:59"


def test_a_granule_larger_than_a_card_is_refused():
    with pytest.raises(ValueError, match="GPU-b is smaller than the granule: choose a smaller one with --granule"):
        gres_lines("n1", CARDS, 80 * GIB)


@pytest.mark.parametrize(
    ("gres", "size"),
    [
        ("gpu:2,shard:32,net:100", NodeSize("n", 2, 16, 100)),
        ("gpu:h200:2(S:0-1),shard:h200:160(S:0-1)", NodeSize("n", 2, 80)),
        ("gpu:a:1,gpu:b:1,shard:a:8,shard:b:8", NodeSize("n", 2, 8)),
        ("gpu:4", NodeSize("n", 4, 0)),
        ("(null)", NodeSize("n", 0, 0)),
    ],
)
def test_what_sinfo_prints_of_a_node(gres, size):
    assert node_size("n", gres) == size


@pytest.mark.parametrize(
    ("detail", "portion"),
    [
        ("net(CNT:10),shard:10(5/16,5/16)", ((), {0: 5, 3: 5})),  # Slurm 24.11.5
        ("shard:h200:50(0/80,50/80)", ((), {3: 50})),
        ("gpu:h200:2(IDX:0-1)", ((0, 3), {})),
        ("gpu:1(IDX:1),shard:0(0/16,0/16)", ((3,), {})),
        ("net(CNT:10)", ((), {})),
        ("", ((), {})),
    ],
)
def test_what_a_job_has_of_a_node(detail, portion):
    assert read_portion(detail, [0, 3]) == portion
