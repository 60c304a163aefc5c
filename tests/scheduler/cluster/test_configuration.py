"""The files of a cluster, what is wrong with one, and the variables of frameworks."""

import json
from dataclasses import replace

import pytest

from convgpu.cluster.configuration import Sources, explain_cards, files, node_words, with_node
from convgpu.cluster.environment import Place, variables
from convgpu.cluster.faults import controller_faults, faults, read_config
from convgpu.cluster.settings import NodeCard, Settings, read_settings

GIB = 1 << 30
CARD = NodeCard("GPU-a", "/dev/nvidia0", 16 * GIB)
SOURCES = Sources(
    "/ship/slurm",
    "/env/python",
    "/env/lib",
    "-- x\nlocal GRANULE = 1\nlocal LARGEST = 0\nrest\n",
    "Prolog=@DIRECTORY@/prolog\nKillWait=@GRACE@\n",
    "PreemptType=preempt/qos\n",
)
GOOD = """\
Configuration data as of 2026-11-22T10:50:26
Epilog[0]               = /etc/slurm/convgpu/epilog
GresTypes               = gpu,shard,gpumem,net
JobSubmitPlugins        = lua
Prolog[0]               = /etc/slurm/convgpu/prolog
SelectTypeParameters    = CR_CPU,MULTIPLE_SHARING_GRES_PJ,ONE_TASK_PER_SHARING_GRES
SLURM_VERSION           = 24.11.5
"""


def test_the_files_of_a_cluster():
    settings = with_node(with_node(Settings({}, granule=2 * GIB), "n1", (CARD,)), "n2", (CARD,))
    written = files(settings, "/etc/slurm", SOURCES)
    assert written["gres.conf"].splitlines()[1:] == [
        f"NodeName={node} Name={name} {rest}"
        for node in ("n1", "n2")
        for name, rest in (("gpu", "File=/dev/nvidia0"), ("shard", "Count=8 File=/dev/nvidia0"))
    ]
    assert written["convgpu.conf"] == "Prolog=/etc/slurm/convgpu/prolog\nKillWait=30\n"
    assert written["convgpu-controller.conf"] == "PreemptType=preempt/qos\n"
    assert written["job_submit.lua"] == "-- x\nlocal GRANULE = 2048\nlocal LARGEST = 8\nrest\n"
    assert written["convgpu/prolog"].endswith(
        "CONVGPU_SLURM=/etc/slurm/convgpu.json exec /env/python -I -S /ship/slurm/prolog /env/lib\n"
    )
    assert written["convgpu/health"] == written["convgpu/epilog"] != written["convgpu/prolog"]
    assert read_settings(written["convgpu.json"]) == settings
    assert node_words(settings, "n1") == "Gres=gpu:1,shard:8"


def test_the_network_of_a_node_is_counted_where_it_is_known():
    settings = with_node(with_node(Settings({}), "n1", (CARD,), 25), "n2", (CARD,))
    lines = files(settings, "/etc/slurm", SOURCES)["gres.conf"].splitlines()
    assert [line for line in lines if "net" in line] == ["NodeName=n1 Name=net Count=25 Flags=CountOnly"]
    assert (node_words(settings, "n1"), node_words(settings, "n2")) == (
        "Gres=gpu:1,shard:16,net:25",
        "Gres=gpu:1,shard:16",
    )


def test_gangs_are_refused_where_more_is_promised_than_the_cards_have():
    sources = replace(SOURCES, lua="local GRANULE = 1024\nlocal OVERSUBSCRIBED = false\n")
    for threshold, word in ((1.0, "false"), (1.5, "true")):
        written = files(Settings({"n1": (CARD,)}, threshold=threshold), "/etc/slurm", sources)
        assert written["job_submit.lua"] == f"local GRANULE = 1024\nlocal OVERSUBSCRIBED = {word}\n"


@pytest.mark.parametrize("granule", [GIB + 1, 63 << 20])
def test_a_granule_that_the_lua_cannot_count_is_refused(granule):
    with pytest.raises(ValueError, match="write whole MiB, at least 64MiB, for example --granule 256m"):
        files(Settings({"n1": (CARD,)}, granule=granule), "/etc/slurm", SOURCES)


def test_a_granule_of_less_than_a_gib():
    settings = with_node(Settings({}, granule=256 << 20), "n1", (CARD,))
    assert (
        files(settings, "/etc/slurm", SOURCES)["job_submit.lua"]
        == "-- x\nlocal GRANULE = 256\nlocal LARGEST = 64\nrest\n"
    )
    assert node_words(settings, "n1") == "Gres=gpu:1,shard:64"


def test_capacity_product_host_memory_and_reuse_count_are_put_out():
    settings = Settings({"n1": (CARD,)}, granule=2 * GIB, threshold=1.5)
    assert list(explain_cards(settings, "n1")) == [
        "/dev/nvidia0  GPU-a: capacity 16GiB x 1.5 = 24GiB, host memory 8GiB, 12 containers of 2GiB"
    ]


def test_a_cluster_as_it_has_to_be_has_no_fault():
    assert list(faults(read_config(GOOD))) == []


@pytest.mark.parametrize(
    ("line", "other", "text"),
    [
        ("24.11.5", "23.11.4", "Slurm is version 23.11.4; ConvGPU needs 24.05 or newer"),
        ("= lua", "= (null)", "Slurm does not ask job_submit.lua"),
        (",ONE_TASK_PER_SHARING_GRES", "", "SelectTypeParameters lacks ONE_TASK_PER_SHARING_GRES"),
        ("shard,gpumem", "shard", "GresTypes lacks gpumem"),
        ("/etc/slurm/convgpu/epilog", "(null)", "Epilog is not ConvGPU's"),
    ],
)
def test_each_fault_is_one_line_with_what_to_type(line, other, text):
    found = list(faults(read_config(GOOD.replace(line, other))))
    assert len(found) == 1
    assert found[0].startswith(text)


ORDERED = {
    "PriorityType": "priority/multifactor",
    "PreemptType": "preempt/qos",
    "PreemptMode": "REQUEUE",
    "PriorityFlags": "CALCULATE_RUNNING",
}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PriorityType", "priority/basic", "PriorityType is priority/basic, so nothing is ordered: "),
        ("PreemptType", "preempt/none", "jobs are ordered and never displaced"),
        ("PriorityFlags", "", "PriorityFlags lacks CALCULATE_RUNNING"),
    ],
)
def test_what_keeps_the_controllers_order_from_being_carried_out(name, value, text):
    assert list(controller_faults(ORDERED)) == []
    (found,) = controller_faults({**ORDERED, name: value})
    assert found.startswith(text)
    assert found.endswith(": Include convgpu-controller.conf, and restart slurmctld")


def test_frameworks_find_the_other_workers():
    found = variables(Place(12, ["a", "b"], 1, 4, 2))
    assert {name: found[name] for name in ("CONVGPU_JOB", "CONVGPU_RESTART", "MASTER_ADDR", "MASTER_PORT")} == {
        "CONVGPU_JOB": "12",
        "CONVGPU_RESTART": "2",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "20012",
    }
    assert {name: value for name, value in found.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "a",
        "PET_MASTER_PORT": "20012",
    }
    assert json.loads(found["TF_CONFIG"]) == {
        "cluster": {"worker": ["a:20012", "b:20012"]},
        "task": {"type": "worker", "index": 1},
    }
    assert (found["DMLC_NUM_WORKER"], found["DMLC_WORKER_ID"], found["DMLC_PS_ROOT_URI"]) == ("2", "1", "a")


def test_a_rank_is_given_where_a_container_is_one_worker():
    alone = variables(Place(12, ["a", "b"], 1, 1, 0))
    assert (alone["RANK"], alone["WORLD_SIZE"], alone["LOCAL_RANK"]) == ("1", "2", "0")
    assert "RANK" not in variables(Place(12, ["a", "b"], 1, 2, 0))
