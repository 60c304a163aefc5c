"""What a node knows of a job: from Slurm's JSON to bytes by card."""

import json

import msgspec
import pytest

from convgpu.cluster.listing import Job, read_jobs, reason_in_words
from convgpu.cluster.node_job import NodeCard, NodeJob, Settings, node_job, read_node_job

GIB = 1 << 30
CARDS = (NodeCard("GPU-a", "/dev/nvidia0", 16 * GIB), NodeCard("GPU-b", "/dev/nvidia1", 16 * GIB - 1))
SETTINGS = Settings({"n1": CARDS, "n2": (NodeCard("GPU-c", "/dev/nvidia0", 16 * GIB),)})


def number(value):
    return {"set": True, "infinite": False, "number": value}


def document(**fields):
    """Return a job as `scontrol show job --json` of Slurm 24.11.5 printed it, as far as we read it."""
    job = {
        "job_id": 12,
        "name": 'evil" Nodes=n1 GRES=shard:16(16/16)',
        "user_id": 1000,
        "user_name": "alice",
        "job_state": ["RUNNING"],
        "state_reason": "None",
        "nodes": "n[1-2]",
        "node_count": number(2),
        "tasks": number(4),
        "tres_per_task": "gres/shard:5",
        "tres_per_node": "gres/net:10",
        "gres_detail": ["net(CNT:10),shard:10(5/16,5/16)", "net(CNT:10),shard:5(5/16)"],
        "job_resources": {"nodes": {"list": "n[1-2]", "allocation": [{"name": "n1"}, {"name": "n2"}]}},
        "restart_cnt": 1,
        "standard_output": "/home/alice/slurm-12.out",
        "start_time": number(1795344708),
        "comment": "",
        **fields,
    }
    return json.dumps({"jobs": [job], "warnings": []})


def test_a_share_on_each_node():
    job = read_jobs(document())[0]
    assert node_job(job, "n1", SETTINGS) == NodeJob(12, "n1", 1000, 1, {"GPU-a": 5 * GIB, "GPU-b": 5 * GIB}, network=10)
    assert node_job(job, "n2", SETTINGS) == NodeJob(12, "n2", 1000, 1, {"GPU-c": 5 * GIB}, network=10)


def test_a_whole_card_is_as_much_as_the_card_has():
    job = read_jobs(document(gres_detail=["gpu:1(IDX:1)"], tres_per_task="", tres_per_node="gres/gpu:1"))[0]
    assert node_job(job, "n1", SETTINGS).cards == {"GPU-b": 15 * GIB}
    assert (job.shards, job.cards) == (None, 2)


@pytest.mark.parametrize(
    ("task", "detail"),
    [("", "shard:10(5/16,5/16)"), ("gres/shard:10", "shard:10(4/16,6/16)")],
    ids=["plain", "lua off"],
)
def test_a_share_that_lies_on_two_cards_is_a_fault(task, detail):
    job = read_jobs(document(gres_detail=[detail], tres_per_task=task))[0]
    assert node_job(job, "n1", SETTINGS).fault.startswith("Slurm has split the share over cards")


def test_a_job_without_cards_has_none():
    job = read_jobs(document(gres_detail=[], tres_per_task="", tres_per_node=""))[0]
    assert node_job(job, "n1", SETTINGS) == NodeJob(12, "n1", 1000, 1, {})


@pytest.mark.parametrize(
    ("states", "fault"),
    [
        (["COMPLETED", "COMPLETING"], "the job is completed completing: it ended before its Prolog ran on this node"),
        (["CANCELLED"], "the job is cancelled: it ended before its Prolog ran on this node"),
        (["RUNNING"], "Slurm names no cards of this node for the job, which is running"),
    ],
)
def test_a_node_of_which_slurm_names_no_cards_has_nothing_and_says_why(states, fault):
    job = read_jobs(document(job_state=states, gres_detail=[]))[0]
    assert node_job(job, "n1", SETTINGS) == NodeJob(12, "n1", 1000, 1, {}, fault, 10)


def test_an_unknown_node_is_an_error():
    with pytest.raises(ValueError, match="n9 is not in the settings of the cluster: run `convgpu slurm setup` there"):
        node_job(read_jobs(document())[0], "n9", SETTINGS)


def test_the_file_of_a_job_is_read_as_it_was_written():
    share = NodeJob(12, "n1", 1000, 0, {"GPU-a": 5 * GIB})
    assert read_node_job(msgspec.json.encode(share)) == share
    with pytest.raises(ValueError, match="Expected"):
        read_node_job(b'{"job": "12"}')


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state_reason": "Resources"}, "waits until its cards are free"),
        ({"state_reason": "SomethingNew_Here"}, "SomethingNew Here"),
        ({"state_reason": "None"}, ""),
        ({"admin_comment": "ended: above its limit"}, "ended: above its limit"),
    ],
)
def test_reasons_are_words(fields, words):
    assert reason_in_words(Job(1, **fields)) == words
