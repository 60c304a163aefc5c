"""What a node knows of a job: from Slurm's JSON to bytes by card."""

import json

import msgspec
import pytest

from convgpu.cluster.allotment import allotment, card_number, count_of
from convgpu.cluster.listing import Job, read_jobs, reason_in_words
from convgpu.cluster.node_job import NodeJob, read_node_job
from convgpu.cluster.settings import NodeCard, Settings
from convgpu.protocol.quick import quick_json

GIB = 1 << 30
CARDS = (NodeCard("GPU-a", "/dev/nvidia0", 16 * GIB), NodeCard("GPU-b", "/dev/nvidia1", 16 * GIB - 1))
SETTINGS = Settings({"n1": CARDS, "n2": (NodeCard("GPU-c", "/dev/nvidia0", 16 * GIB),)})


def node_job(node="n1", **fields):
    """Return what the Prolog writes of a job, as the others read it."""
    settings = quick_json.loads(msgspec.json.encode(SETTINGS))
    job = quick_json.loads(document(**fields).encode())["jobs"][0]
    return read_node_job(quick_json.dumps(allotment(job, node, settings)))


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
    assert node_job() == NodeJob(12, "n1", 1000, 1, {"GPU-a": 5 * GIB, "GPU-b": 5 * GIB}, network=10)
    assert node_job("n2") == NodeJob(12, "n2", 1000, 1, {"GPU-c": 5 * GIB}, network=10)


def test_a_whole_card_is_as_much_as_the_card_has():
    fields = {"gres_detail": ["gpu:1(IDX:1)"], "tres_per_task": "", "tres_per_node": "gres/gpu:1"}
    assert node_job(**fields).cards == {"GPU-b": 15 * GIB}
    job = read_jobs(document(**fields))[0]
    assert (job.shards, job.cards) == (None, 2)


@pytest.mark.parametrize(
    ("task", "detail"),
    [("", "shard:10(5/16,5/16)"), ("gres/shard:10", "shard:10(4/16,6/16)")],
    ids=["plain", "lua off"],
)
def test_a_share_that_lies_on_two_cards_is_a_fault(task, detail):
    share = node_job(gres_detail=[detail], tres_per_task=task)
    assert share.fault.startswith("Slurm has split the share over cards")


def test_a_job_without_cards_has_none():
    assert node_job(gres_detail=[], tres_per_task="", tres_per_node="") == NodeJob(12, "n1", 1000, 1, {})


@pytest.mark.parametrize(
    ("states", "fault"),
    [
        (["COMPLETED", "COMPLETING"], "the job is completed completing: it ended before its Prolog ran on this node"),
        (["CANCELLED"], "the job is cancelled: it ended before its Prolog ran on this node"),
        (["RUNNING"], "Slurm names no cards of this node for the job, which is running"),
    ],
)
def test_a_node_of_which_slurm_names_no_cards_has_nothing_and_says_why(states, fault):
    assert node_job(job_state=states, gres_detail=[]) == NodeJob(12, "n1", 1000, 1, {}, fault, 10)


def test_an_unknown_node_is_an_error():
    with pytest.raises(ValueError, match="n9 is not in the settings of the cluster: run `convgpu slurm setup` there"):
        node_job("n9")


def test_a_card_without_a_number_is_an_error():
    assert card_number("/dev/nvidia12") == 12
    with pytest.raises(ValueError, match="/dev/card does not end with a number: Slurm names cards by it"):
        card_number("/dev/card")


@pytest.mark.parametrize(
    ("tres", "count"),
    [("gres/gpu:h200:2,gres/net:5", 2), ("gpu:4", 4), ("gres/gpu=3", 3), ("gres/gpu", None), ("gres/gpumem:8", None)],
)
def test_resources_are_counted_by_kind(tres, count):
    assert count_of(tres, "gpu") == count


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "it is no object of JSON"),
        ("{", "Expecting property name"),
        ('{"job": "12"}', "job has another form"),
        ('{"job": true}', "job has another form"),
        ('{"job": 12}', "NodeJob has the fields job, node, user, restarts, cards, fault, network, not"),
        ('{"job": 12, "node": "n", "user": 0, "restarts": 0, "cards": []}', "cards has another form"),
        ('{"job": 12, "node": "n", "user": 0, "restarts": 0, "cards": {"a": 1.5}}', "cards has another form"),
        ('{"job": 12, "node": "n", "user": 0, "restarts": 0, "cards": {"a": null}}', "cards has another form"),
    ],
)
def test_the_file_of_a_job_has_to_have_its_form(text, why):
    with pytest.raises(ValueError, match=why):
        read_node_job(text)


def test_fields_of_a_later_prolog_are_passed_over():
    text = '{"job": 12, "node": "n", "user": 0, "restarts": 0, "cards": {"a": 1}, "later": []}'
    assert read_node_job(text) == NodeJob(12, "n", 0, 0, {"a": 1})


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
