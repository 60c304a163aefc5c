"""Starts that the Engine has not answered yet, and containers that it starts by itself, count into quotas."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
import strict_site
from engine_says import GPU, HOOK, OURS, inspected

from convgpu.authz.facts.starts import UnansweredStarts
from convgpu.authz.ports import EngineHolds
from convgpu.authz.site.rules import parse_rules
from convgpu.authz.subject.found_names import FoundNames
from convgpu.authz.verdict import Refusal


def test_a_start_counts_until_the_engine_has_answered_it(harness, start):
    """With a thousandth of a core one took 39 s; a restart waits for the programs that are to end."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    slow = inspected(GPU, mounts=[{**OURS, "Name": "one"}])
    assert harness.start(slow, user="bob", is_answered=False).allow
    harness.scheduler.since["one"] = harness.now + 5  # its programs before
    harness.now += 60
    assert start("two").rule == "total-quota-exceeded"
    harness.note("/containers/other/start", {}, "bob")
    assert start("two").rule == "total-quota-exceeded"
    harness.note("/v1.41/containers/c/start", {}, "bob")
    assert start("two").allow
    assert harness.start(slow, user="eve", is_answered=False).allow
    harness.now += 4201  # its answer never came
    harness.rules = parse_rules('[users.eve]\ntotal_quota = "2g"')
    assert start("three", user="eve").allow


@pytest.mark.parametrize(
    ("call", "timeout", "seconds"),
    [
        ("restart", 0, 180),
        ("restart?t=195", 0, 375),
        ("restart", 60, 240),
        ("restart?t=5", 60, 185),
        ("restart?t=-1", 0, 3780),
        ("restart?t=9999", 0, 3780),
        ("restart?t=&t=1", 60, 240),  # the Engine reads the first one
        ("start?t=195", 60, 180),
    ],
)
def test_a_restart_of_the_plugin_does_not_shorten_the_wait_for_a_containers_end(harness, start, call, timeout, seconds):
    """`restart -t 195` of one that starts slowly counted no more when three minutes were over."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    slow = inspected(GPU, mounts=[{**OURS, "Name": "one"}], StopTimeout=timeout)
    action, _, query = call.partition("?")
    assert harness.start(slow, f"?{query}", user="bob", is_answered=False, action=action).allow
    harness.scheduler.since["one"] = harness.now + 5  # its programs before
    for _restart in range(2):
        harness.restart()
    harness.now += seconds - 1
    assert start("two").rule == "total-quota-exceeded"
    harness.now += 2
    assert start("two").allow


def test_of_starts_that_are_called_alike_all_have_to_be_answered(harness):
    """A prefix of one's id is another one's name; and others' answers are none."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    slow = {**inspected(GPU, mounts=[{**OURS, "Name": "one"}]), "Id": "ab" * 32}
    assert harness.start(slow, user="bob", is_answered=False).allow
    harness.now += 60
    assert harness.start(inspected({}, mounts=[]), user="bob").allow  # also called c
    harness.engine.containers.pop("c")
    assert harness.judge(b"", "/v1.41/containers/c/start", user="bob").rule == "no-such-container"
    harness.note("/v1.41/containers/c/start", {}, "bob")
    harness.note("/v1.41/containers/c/start", {}, "carol")
    harness.engine.containers["d"] = inspected(GPU, mounts=[{**OURS, "Name": "two"}])
    harness.scheduler.limits["two"] = 2 << 30
    assert harness.judge(b"", "/v1.41/containers/d/start", user="bob").rule == "total-quota-exceeded"
    harness.note("/v1.41/containers/c/start", {}, "bob")
    assert harness.judge(b"", "/v1.41/containers/d/start", user="bob").allow


def test_an_answer_waits_for_nobody(harness):
    """Who holds the lock may ask the Engine, which waits for the plugin to take that very answer."""
    with harness.owners.lock, ThreadPoolExecutor(1) as pool:
        pool.submit(harness.note, "/v1.41/containers/c/start", {}, "bob").result(timeout=30)


def test_what_was_let_in_and_is_denied_after_all_does_not_count(strict, monkeypatch):
    """Another container has the name by then. The Engine answers nothing that was denied."""
    strict.rules = parse_rules(strict_site.RULES + '[users.bob]\ntotal_quota = "2g"')
    begun = Mock(wraps=strict.owners.starts.begin)
    monkeypatch.setattr(strict.owners.starts, "begin", begun)
    monkeypatch.setattr(FoundNames, "changed", lambda *_: [Refusal("strict-names", "it is another one")])
    assert strict.judge(b"", "/v1.41/containers/c/start", user="bob").rule == "strict-names"
    assert (begun.call_count, strict.owners.starts.await_answer("mine")) == (1, False)


def test_others_of_its_volume_do_not_make_a_container_be_forgotten(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30

    def numbered(number, status):
        found = inspected(GPU, mounts=[{**OURS, "Name": "one"}])
        return {**found, "Id": f"{number:064x}", "State": {"Status": status}}

    assert harness.start(numbered(999, "created"), user="bob").allow
    harness.engine.containers["first"] = numbered(999, "restarting")
    for number in range(20):
        harness.scheduler.since["one"] = harness.now + 1
        harness.now += 60
        assert harness.start(numbered(number, "created"), user="bob").allow
        harness.engine.containers[f"{number}"] = numbered(number, "exited")
    harness.scheduler.since["one"] = harness.now + 1
    harness.now += 60
    assert start("two").rule == "total-quota-exceeded"


def test_who_waits_for_the_next_start_by_its_policy_counts(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    again = {**inspected(GPU, mounts=[{**OURS, "Name": "one"}]), "Id": "a" * 64}
    assert harness.start(again, user="bob").allow
    harness.engine.containers["a"] = {**again, "State": {"Status": "restarting"}}
    harness.scheduler.since["one"] = harness.now + 1  # its last programs have ended
    harness.now += 60
    assert start("two").rule == "total-quota-exceeded"
    assert start("one", user="carol").rule == "gpu-isolation"
    assert start("one").allow
    harness.restart()
    harness.scheduler.since["one"] = harness.now + 1
    assert start("two").rule == "total-quota-exceeded"
    harness.engine.containers["a"]["State"]["Status"] = "exited"
    harness.engine.containers["c"]["State"] = {"Status": "exited"}
    assert start("two").allow


def injected(number, status="created"):
    """A container without a volume; the scheduler knows it by its id, while it has programs."""
    host = {**GPU, "Runtime": "convgpu"}
    found = inspected(host, mounts=[], env=["CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=all"])
    return {**found, "Id": f"{number:064x}", "State": {"Status": status}}


def test_an_injected_limit_counts_between_two_starts_by_a_policy(harness, start):
    """Also if it was started again while it had programs, so that the scheduler knew it then."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    name = f"{1:064x}"
    assert harness.start(injected(1), user="bob").allow
    harness.scheduler.limits[name], harness.scheduler.running = 2 << 30, {name}
    harness.now += 60
    assert harness.start(injected(1, "running"), user="bob").allow
    harness.scheduler.limits, harness.scheduler.running = {}, set()
    harness.engine.containers["1"] = injected(1, "restarting")
    harness.now += 60
    assert start("two").rule == "total-quota-exceeded"
    assert harness.start(injected(1, "restarting"), user="carol").rule == "gpu-isolation"
    assert harness.start(injected(2), user="bob").rule == "total-quota-exceeded"
    harness.engine.containers["1"] = injected(1, "exited")
    assert harness.start(injected(2), user="bob").allow
    assert harness.start(injected(1, "exited"), user="carol").allow


def test_a_start_counts_over_a_restart_of_the_plugin(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    assert harness.start(inspected(GPU, mounts=[{**OURS, "Name": "one"}]), user="bob", is_answered=False).allow
    for _ in range(2):
        harness.restart()
        harness.now += 60
        assert start("two").rule == "total-quota-exceeded"
    harness.note("/v1.41/containers/c/start", {}, "bob")
    harness.restart()
    assert start("two").allow


def test_a_start_whose_answer_the_plugin_missed_counts_for_minutes(harness, start):
    """The worker was killed amid it: who removed that container should not wait for an hour."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    assert harness.start(inspected(GPU, mounts=[{**OURS, "Name": "one"}]), user="bob", is_answered=False).allow
    harness.scheduler.since["one"] = harness.now + 5  # it has ended
    for _ in range(2):  # more restarts make it no longer
        harness.restart()
        harness.now += 89
        assert start("two").rule == "total-quota-exceeded"
    harness.now += 3
    assert start("two").allow


def test_a_restart_that_waits_for_an_hour_counts(harness, start):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    assert harness.start(inspected(GPU, mounts=[{**OURS, "Name": "one"}]), user="bob", is_answered=False).allow
    harness.scheduler.since["one"] = harness.now + 5
    harness.now += 3700
    assert start("two").rule == "total-quota-exceeded"


@pytest.mark.parametrize(
    "text", ["{", "[1]", '[{"user": "bob"}]', '[{"user":1,"call":"c","count":1,"since":[],"names":""}]']
)
def test_a_damaged_file_of_starts_begins_anew(tmp_path, caplog, text):
    path = tmp_path / "starts.json"
    path.write_text(text)
    starts = UnansweredStarts(path, lambda: 1000.0)
    assert "cannot be read" in caplog.text
    starts.begin("bob", "c", {"one"})
    now = 1100.0
    again = UnansweredStarts(path, lambda: now)
    now += 179
    assert (again.await_answer("one"), again.overdue()) == (True, [])
    now += 1
    assert [start.call for start in again.overdue()] == ["c"]


def test_starts_that_cannot_be_written_count(tmp_path, caplog):
    starts = UnansweredStarts(tmp_path / "missing" / "starts.json", lambda: 1000.0)
    starts.begin("bob", "c", {"one"})
    assert starts.await_answer("one")
    starts.answered("bob", "c")
    assert not starts.await_answer("one")
    assert "cannot be written" in caplog.text


def test_of_a_volume_all_that_run_are_remembered(harness, start):
    """Seventeen of them, of which the first waits for its next start by its policy."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30

    def numbered(number, status):
        found = inspected(GPU, mounts=[{**OURS, "Name": "one"}])
        return {**found, "Id": f"{number:064x}", "State": {"Status": status}}

    for number in range(20):
        assert harness.start(numbered(number, "created"), user="bob").allow
        harness.engine.containers[f"{number}"] = numbered(number, "running" if number else "restarting")
        harness.now += 60
    for number in range(1, 20):
        harness.engine.containers[f"{number}"] = numbered(number, "exited")
    harness.engine.containers.pop("c")
    harness.scheduler.since["one"] = harness.now + 1
    harness.now += 60
    assert start("two").rule == "total-quota-exceeded"


def test_a_start_that_the_engine_holds_does_not_count(strict, monkeypatch):
    strict.rules = parse_rules(strict_site.RULES + '[users.bob]\ntotal_quota = "2g"')

    def hold(*_):
        raise EngineHolds("container c", 2.0)

    monkeypatch.setattr(FoundNames, "changed", hold)
    assert strict.judge(b"", "/v1.41/containers/c/start", user="bob").rule == "held"
    assert strict.owners.starts._calls == {}


def test_a_start_that_is_refused_gives_a_volume_no_limit(harness, start):
    """It is that of all who mount it from then on."""
    harness.rules = parse_rules('default_limit = "1g"\n[users."*"]\ntotal_quota = "2g"')
    assert start("two").allow
    harness.engine.containers["two"] = {**harness.engine.containers["c"], "State": {"Status": "running"}}
    harness.scheduler.running.add("two")
    harness.scheduler.limits["theirs"] = 0
    shared = inspected(GPU, mounts=[{**OURS, "Name": "theirs"}], env=[HOOK, "CONVGPU_MEMORY=2g"])
    assert harness.start(shared, user="bob").rule == "total-quota-exceeded"
    assert harness.scheduler.limits["theirs"] == 0
    assert harness.start(shared, user="eve").allow
    assert harness.scheduler.limits["theirs"] == 2 << 30


def test_the_limit_that_a_volume_is_given_is_judged_again(harness, monkeypatch):
    """The scheduler reads what is asked for, and may give more than was expected of that."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 0
    monkeypatch.setattr(
        harness.scheduler, "set_limit", lambda volume, _memory: harness.scheduler.limits.update({volume: 8 << 30})
    )
    asked = inspected(GPU, mounts=[{**OURS, "Name": "one"}], env=[HOOK, "CONVGPU_MEMORY=1g"])
    assert harness.start(asked, user="bob").rule == "total-quota-exceeded"
    assert not harness.owners.starts.await_answer("one")
