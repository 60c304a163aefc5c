"""Whose containers are, and what those left that are gone."""

import pytest

from convgpu.authz.facts.owners import Owners, limits_of
from convgpu.authz.site.rules import parse_rules
from convgpu.protocol.records import Container, Placement, Share, Unlimited


def left(name, size, **fields):
    """What the scheduler says that a container left behind when it or one of its processes ended."""
    return Unlimited(name, "", size << 30, kept="somebody has the descriptor", **fields)


def test_what_a_removed_container_left_counts(harness, start):
    """It would else have as much as there is: one container after the other, each within its limit."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    assert start("one").allow
    harness.scheduler.limits.clear()
    assert start("carols", user="carol").allow  # the scheduler may not show yet what `one` left
    harness.scheduler.left = [left("one", 1), left("one", 2), left("a stranger", 9)]
    verdict = start("two")
    assert verdict.message.startswith(
        "total-quota-exceeded: containers of user bob that run or are being started have 0B on GPU-1, "
        "ended ones left 3GiB behind there, "
    )
    assert verdict.message.endswith("`convgpu ps` says who keeps what was left behind.")
    assert start("one").rule == "total-quota-exceeded"  # also one with the same name
    harness.scheduler.left = [left("one", 2)]
    assert start("two").allow
    harness.scheduler.left = []
    assert start("one").allow


def test_a_container_whose_gpu_is_not_chosen_counts_on_each_that_it_may_get(harness, start):
    """Five of 6 GiB that had allocated nothing yet had 22 GiB of a quota of 6 on two GPUs."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    harness.scheduler.unplaced = {"one", "two", "three"}
    assert start("one").allow
    assert start("two").allow
    refused = start("three")
    assert refused.rule == "total-quota-exceeded"
    assert "GPU-1" in refused.message
    harness.scheduler.unplaced.discard("two")
    harness.scheduler.unplaced.discard("one")
    assert start("three").rule == "total-quota-exceeded"  # it may get the GPU that both have
    harness.scheduler.running.add("two")
    harness.now += 20
    assert start("three").allow  # `one` failed to start, or has ended


def test_a_chosen_gpu_is_not_the_last_one():
    """When its program ended, the next one got the other GPU, where the quota was used up already: 12 GiB of 6."""
    choice = {"GPU-1": 6, "GPU-2": 6}
    share = Share(uuid="GPU-1", limit=8, grant=0, usage=0)  # a lower limit that is not in force yet
    fields = {"name": "one", "mountpoint": "/x", "created": 1.0, "state": "running"}
    assert limits_of(Container(**fields, placement=Placement(1, choice))) == choice
    assert limits_of(Container(**fields, placement=Placement(1, choice), devices=(share,))) == choice | {"GPU-1": 8}
    assert limits_of(Container(**fields, devices=(share,))) == {"GPU-1": 8}


def test_what_is_within_a_limit_counts_once(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    assert start("one").allow
    harness.scheduler.left = [left("one", 1, is_charged=True)]
    harness.scheduler.running.add("one")
    assert start("two").allow  # with the limit of `one`
    harness.scheduler.running.clear()
    harness.scheduler.since = {"one": harness.now, "two": harness.now}
    harness.scheduler.limits["three"] = 4 << 30
    assert start("three").rule == "total-quota-exceeded"  # `one` has ended, and is charged still
    harness.scheduler.limits["one"] = 4 << 30
    assert start("one").allow  # its own charge is within its limit


def test_the_owner_of_what_is_gone_is_remembered_for_ten_minutes(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    for seconds, passes in ((590, False), (610, True)):
        harness.scheduler.left = []
        assert start("one").allow
        harness.scheduler.limits.clear()
        assert start("carols", user="carol").allow
        harness.now += seconds
        assert start("carols", user="carol").allow
        harness.scheduler.left = [left("one", 1)]
        assert start("two").allow == passes


def test_the_name_of_what_was_left_is_refused_to_other_users(harness, start):
    assert start("one").allow
    harness.scheduler.left = [left("one", 1)]
    verdict = start("one", user="carol")
    assert verdict.message.startswith(
        "gpu-isolation: a container of bob whose volume was called one left memory behind"
    )
    assert start("one").allow


def test_owners_survive_a_restart_of_the_plugin(harness, start, tmp_path):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    assert start("one").allow
    harness.scheduler.running.add("one")
    harness.owners = Owners(tmp_path / "owners.json", lambda: harness.now + 1000)
    assert start("two").rule == "total-quota-exceeded"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"one": 7}', '{"one": {"user": "bob"}}'])
def test_an_unreadable_file_of_owners_is_ignored(tmp_path, text, caplog):
    (tmp_path / "owners.json").write_text(text)
    Owners(tmp_path / "owners.json")
    assert "cannot be read" in caplog.text
