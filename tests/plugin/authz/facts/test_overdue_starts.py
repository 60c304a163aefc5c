"""A start whose answer may be lost counts for as long as the Engine is at work with it, which the Engine is asked."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from engine_says import GPU, OURS, inspected

from convgpu.authz.facts.overdue_starts import Time, settle
from convgpu.authz.facts.starts import UnansweredStarts
from convgpu.authz.ports import EngineHolds, EngineUnreachable
from convgpu.authz.quotas import Quotas
from convgpu.authz.site.rules import parse_rules

SLOW = "a" * 64
LABEL = '[users."*"]\ntotal_quota = "8g"\n[labels."team=x"]\ntotal_quota = "2g"'


def slow(status="created", **config):
    """A container whose start takes the Engine long."""
    found = inspected(GPU, mounts=[{**OURS, "Name": "one"}], **config)
    return {**found, "Id": SLOW, "State": {"Status": status}}


@pytest.fixture
def hanging(harness):
    """A harness that let a start in which the Engine has not answered, and holds."""
    harness.rules = parse_rules('[users."*"]\ntotal_quota = "2g"')
    harness.scheduler.limits["one"] = 2 << 30
    assert harness.start(slow(), user="bob", is_answered=False).allow
    harness.scheduler.since["one"] = harness.now + 5  # the programs of its last run
    harness.engine.containers[SLOW] = slow()
    harness.engine.held = {SLOW}
    return harness


def questions(harness):
    asked = [name for kind, name in harness.engine.asked if kind == "within"]
    harness.engine.asked.clear()
    return asked


@pytest.mark.parametrize("restarts", [0, 2])
def test_it_counts_while_the_engine_holds_the_container(hanging, start, restarts):
    for _ in range(restarts):
        hanging.restart()
    for seconds in (181, 4200, 100_000):
        hanging.now += seconds
        assert start("two").rule == "total-quota-exceeded"
        assert start("one", user="carol").rule == "gpu-isolation"
    hanging.restart()
    hanging.now += 181
    assert start("two").rule == "total-quota-exceeded"


@pytest.mark.parametrize("status", ["created", "exited", "dead", "removing", None])
def test_it_counts_no_more_when_the_engine_answers(hanging, start, status):
    """Another plugin of authorization denied it, or the Engine was killed: nobody tells that it is over."""
    hanging.restart()
    hanging.now += 181
    assert start("two").rule == "total-quota-exceeded"
    hanging.engine.held.clear()
    hanging.engine.containers.pop(SLOW)
    if status is not None:
        hanging.engine.containers[SLOW] = slow(status)
    assert start("two").rule == "total-quota-exceeded"  # nobody asks again at once
    hanging.now += 10
    assert start("two").allow
    hanging.restart()
    assert hanging.owners.starts.overdue() == []


@pytest.mark.parametrize("status", ["running", "paused", "restarting", "of a newer Engine"])
def test_what_runs_counts_and_may_be_started_again_after_its_end(hanging, start, status):
    """A restart waits for the end of what runs, before it holds the container."""
    hanging.now += 4200
    hanging.engine.held.clear()
    hanging.engine.containers[SLOW] = slow(status)
    assert start("two").rule == "total-quota-exceeded"
    hanging.now += 10
    hanging.engine.held = {SLOW}
    assert start("two").rule == "total-quota-exceeded"


def test_its_answer_ends_it_at_any_time(hanging, start):
    hanging.now += 4200
    assert start("two").rule == "total-quota-exceeded"
    hanging.note("/v1.41/containers/c/start", {}, "bob")
    assert start("two").allow


def test_one_answer_is_not_enough(hanging, start):
    """A start that waits for the container's lock takes it twice; who asks in between is told `created`."""
    hanging.now += 4200
    hanging.engine.held.clear()
    wait = hanging._wait

    def hold(seconds):
        hanging.engine.held = {SLOW}
        wait(seconds)

    hanging._wait = hold
    hanging.restart()
    hanging.now += 180
    assert start("two").rule == "total-quota-exceeded"
    assert hanging.waited == 1


def test_who_cannot_ask_counts_it_until_the_engine_is_back(hanging, start):
    hanging.now += 4200
    hanging.engine.down = True
    assert start("two").rule == "engine-unavailable"
    assert len(hanging.owners.starts.overdue()) == 1
    hanging.engine.down = False
    hanging.engine.held.clear()
    assert start("two").allow


def test_others_are_not_asked_about_what_is_not_theirs(hanging, start):
    hanging.now += 4200
    assert start("two", user="eve").allow
    assert questions(hanging) == []
    assert start("three", user="bob").rule == "total-quota-exceeded"
    assert questions(hanging) == [SLOW]


def test_nobody_waits_for_who_asks(hanging, start, monkeypatch):
    """All starts wait for the owners' lock, and the Engine may wait until the plugin has taken an answer."""
    within, asked = hanging.engine.container_within, []

    def others():
        is_free = hanging.owners.lock.acquire(timeout=10)
        if is_free:
            hanging.owners.lock.release()
        hanging.note("/v1.41/containers/other/start", {}, "bob")
        return is_free

    def ask(name, seconds):
        with ThreadPoolExecutor(1) as pool:
            asked.append(pool.submit(others).result(timeout=30))
        return within(name, seconds)

    monkeypatch.setattr(hanging.engine, "container_within", ask)
    hanging.now += 4200
    assert start("two").rule == "total-quota-exceeded"
    hanging.now += 10
    assert Quotas(hanging.owners, hanging.scheduler, hanging.engine).read(hanging.rules)
    assert asked == [True, True]


def test_who_shares_a_label_or_a_volume_asks(harness, start):
    harness.rules = parse_rules(LABEL)
    harness.scheduler.limits["one"] = 2 << 30
    assert harness.start(slow(Labels={"team": "x"}), user="bob", is_answered=False).allow
    harness.scheduler.since["one"] = harness.now + 5
    harness.engine.containers[SLOW] = slow()
    harness.now += 4200
    harness.engine.held = {SLOW}
    assert start("two", user="eve", Labels={"team": "x"}).rule == "total-quota-exceeded"
    assert questions(harness) == [SLOW]
    harness.now += 10
    assert start("one", user="carol").rule == "gpu-isolation"
    assert questions(harness) == [SLOW]
    harness.engine.held.clear()
    harness.now += 10
    assert start("two", user="eve", Labels={"team": "x"}).allow


def test_the_use_of_quotas_shows_it_while_it_counts(hanging):
    quotas = Quotas(hanging.owners, hanging.scheduler, hanging.engine)
    hanging.now += 4200
    assert [use.running for use in quotas.read(hanging.rules)] == [2 << 30]
    hanging.engine.held.clear()
    hanging.now += 10
    assert quotas.read(hanging.rules) == ()


def test_a_container_that_removes_itself_is_foreseen_with_it(hanging):
    hanging.now += 4200
    asked = {"Image": "i", "HostConfig": {**GPU, "AutoRemove": True, "Binds": ["two:/run/convgpu"]}}
    hanging.scheduler.limits["two"] = 2 << 30
    hanging.engine.volumes["two"] = {"Driver": OURS["Driver"], "Options": None}
    hanging.engine.images["i"] = {"Config": {"Env": ["LD_PRELOAD=/run/convgpu/libconvgpu.so"]}}
    assert hanging.judge(asked, user="bob").rule == "total-quota-exceeded"
    assert questions(hanging) == [SLOW]


class Engine:
    """One that holds some containers, and takes its time for the others; `on_question` runs before an answer."""

    def __init__(self, held=(), slowness=0.0):
        self.held, self.slowness = set(held), slowness
        self.asked, self.now = [], 0.0
        self.on_question = lambda: None

    def container_within(self, name, seconds):
        self.asked.append(name)
        self.on_question()
        if name in self.held:
            self.now += seconds
            raise EngineHolds(name, seconds)
        self.now += self.slowness

    def settle(self, starts, user="bob"):
        begun, self.asked = self.now, []
        settle(starts, self, lambda _: True, user, Time(lambda: self.now, lambda _: None))
        return self.now - begun


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def unanswered(tmp_path, containers, user="bob"):
    """Return starts that are overdue, and their clock."""
    clock = Clock()
    starts = UnansweredStarts(tmp_path / "starts.json", clock)
    for container in containers:
        starts.begin(user, container, {f"of {container}"}, container=container)
    clock.now = 4200.0
    return starts, clock


def test_of_many_that_hang_one_costs_a_judgement_its_time(tmp_path):
    """Each judgement asks about one, and the next time about another one."""
    containers = [f"{number}" for number in range(200)]
    starts, clock = unanswered(tmp_path, containers)
    engine, seen = Engine(containers), []
    for _ in containers:
        assert engine.settle(starts) == 1
        seen += engine.asked
        clock.now += 1
    assert sorted(seen) == sorted(containers)
    assert all(starts.await_answer(f"of {container}") for container in containers)


@pytest.mark.parametrize(("slowness", "most"), [(0, 64), (0.25, 4)])
def test_of_many_that_are_over_some_are_asked_at_a_time(tmp_path, slowness, most):
    containers = [f"{number}" for number in range(1000)]
    starts, _ = unanswered(tmp_path, containers)
    engine = Engine((), slowness)
    assert engine.settle(starts) <= 2
    assert engine.asked == containers[:most] * 2
    assert sum(starts.await_answer(f"of {container}") for container in containers) == 1000 - most


def test_what_hangs_is_not_in_the_way_of_what_is_over(tmp_path):
    starts, clock = unanswered(tmp_path, ["held", "over"])
    engine = Engine(["held"])
    engine.settle(starts)
    engine.settle(starts)
    assert (starts.await_answer("of held"), starts.await_answer("of over")) == (True, False)
    engine.settle(starts)
    assert engine.asked == []
    clock.now += 10
    engine.settle(starts)
    assert engine.asked == ["held"]
    clock.now -= 1000  # the host's clock was set back
    assert starts.overdue() == []


def test_ones_own_are_asked_about_first(tmp_path):
    starts, _ = unanswered(tmp_path, ["held", "over"])
    starts.begin("carol", "own", {"of own"}, container="own")
    starts._clock.now += 4200
    engine = Engine(["held"])
    engine.settle(starts, "carol")
    assert engine.asked == ["own", "held", "own"]
    assert not starts.await_answer("of own")


def test_what_is_begun_again_while_the_engine_is_asked_counts(tmp_path):
    starts, _ = unanswered(tmp_path, ["c", "d"])
    engine = Engine()
    engine.on_question = lambda: starts.begin("bob", "c", {"of c"}, container="c")
    engine.settle(starts)
    assert (starts.await_answer("of c"), starts.await_answer("of d")) == (True, False)


def test_an_answer_that_comes_while_the_engine_is_asked_waits_for_nobody(tmp_path):
    starts, _ = unanswered(tmp_path, ["c", "held"])
    engine = Engine(["held"])

    def answer():
        with ThreadPoolExecutor(1) as pool:
            for call in ("c", "held"):
                pool.submit(starts.answered, "bob", call).result(timeout=30)

    engine.on_question = answer
    engine.settle(starts)
    assert not starts.await_answer("of c")
    assert not starts.await_answer("of held")
    assert starts.overdue() == []
    assert json.loads((tmp_path / "starts.json").read_text()) == []


def test_of_calls_alike_each_container_is_asked_about(tmp_path):
    """Another container has the name since, or a beginning of the id means another one."""
    starts, clock = unanswered(tmp_path, [])
    starts.begin("bob", "web", {"first"}, container="a")
    clock.now += 100
    starts.begin("bob", "web", {"second"}, container="b")
    clock.now += 4100
    engine = Engine(["b"])
    engine.settle(starts)
    assert engine.asked == ["a", "a"]
    assert (starts.await_answer("first"), starts.await_answer("second")) == (False, True)
    clock.now += 100
    engine.settle(starts)
    assert starts.await_answer("second")


def test_a_file_of_an_older_version_is_asked_about_by_the_name(tmp_path):
    """It has no ids, and one row for all calls that are alike."""
    row = {"user": "bob", "call": "web", "count": 2, "since": 900.0, "names": ["one", "two"]}
    (tmp_path / "starts.json").write_text(json.dumps([row, {**row, "call": "db", "names": ["three"], "waits": 60}]))
    clock = Clock()
    clock.now = 1000.0
    starts = UnansweredStarts(tmp_path / "starts.json", clock)
    clock.now += 180
    assert [(start.container, start.names) for start in starts.overdue()] == [("web", frozenset({"one", "two"}))]
    engine = Engine(["web"])
    engine.settle(starts)
    assert starts.await_answer("one")
    starts.answered("bob", "web")
    assert starts.await_answer("one")
    starts.answered("bob", "web")
    assert (starts.await_answer("one"), starts.await_answer("three")) == (False, True)


def test_a_start_of_which_nothing_counts_is_forgotten_without_a_question(tmp_path):
    starts, clock = unanswered(tmp_path, [])
    starts.begin("bob", "plain", ())
    clock.now += 4200
    assert starts.overdue() == []
    starts.begin("bob", "other", ())
    assert [row["call"] for row in json.loads((tmp_path / "starts.json").read_text())] == ["other"]


def test_an_engine_that_cannot_be_reached_ends_nothing(tmp_path):
    starts, _ = unanswered(tmp_path, ["a", "b"])
    engine = Engine()

    def fail():
        raise EngineUnreachable("no Engine")

    engine.on_question = fail
    engine.settle(starts)
    assert (engine.asked, len(starts.overdue())) == (["a", "b"], 2)


@pytest.mark.parametrize("slowness", [0.0, 0.6])
def test_a_container_that_the_engine_cannot_show_is_not_in_the_way(tmp_path, slowness):
    """The Engine answers with status 500 about one whose layers are lost; nobody knows more about it."""
    starts, _ = unanswered(tmp_path, ["a", "b", "c", "d"])
    engine = Engine(slowness=slowness)

    def fail():
        if engine.asked[-1] in {"a", "b"}:
            engine.now += slowness
            raise EngineUnreachable("status 500")

    engine.on_question = fail
    for _ in range(3):
        engine.settle(starts)
    assert [name for name in "abcd" if starts.await_answer(f"of {name}")] == ["a", "b"]
