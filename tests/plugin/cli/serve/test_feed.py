"""The feed of the page, with a scheduler that answers as it is told and clocks that jump."""

import json

import pytest

from convgpu.cli.serve.feed import MAX_EVENTS, MAX_NAMES, Feed
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.inspection.usage import OTHERS, DeviceUsage, SampledContainer, Usage, UsageSample, UsedShare
from convgpu.protocol.records import Container, Device, Devices, Event, Events

GIB = 1 << 30


def container(name, engine=None):
    named = EngineContainer("c" * 64, engine) if engine else None
    return Container(name=name, mountpoint="/", created=1.0, state="running", engine=named)


class ToldScheduler:
    def __init__(self):
        self.here = []
        self.past = []
        self.first = 1
        self.failure = None
        self.samples = []  # (time, {volume: (grant, usage)})
        self.pages = 60

    def usage(self, step=1, after=0):
        later = [row for row in self.samples if row[0] > after]
        page = later[: self.pages]
        volumes = sorted({volume for _, held in page for volume in held})
        samples = []
        for time, held in page:
            shares = tuple(UsedShare(volumes.index(volume), *sizes) for volume, sizes in held.items())
            samples.append(UsageSample(time, {"GPU-a": DeviceUsage(GIB, 7, 0, shares)}))
        known = (SampledContainer(number, volume, f"{volume}'s name") for number, volume in enumerate(volumes))
        return Usage(step=step, samples=tuple(samples), containers=tuple(known), more=len(later) > len(page))

    def devices(self):
        if self.failure:
            raise self.failure
        fields = {"index": 0, "name": "n", "total": GIB, "capacity": GIB, "granted": 0, "used": 0, "settling": 7}
        return Devices(devices=(Device(uuid="GPU-a", **fields),), policy="fifo")

    def containers(self):
        return tuple(self.here)

    def events(self, since=0):
        past = [(one, None, None) if isinstance(one, str) else one for one in self.past]
        rows = [
            Event(sequence=self.first + i, time=1.0, kind=kind, container=volume, name=name)
            for i, (kind, volume, name) in enumerate(past)
        ]
        return Events(events=tuple(row for row in rows if row.sequence >= since), next=self.first + len(rows))


class Clocks:
    def __init__(self):
        self.monotonic, self.wall = 100.5, 1000.0


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def scheduler():
    return ToldScheduler()


@pytest.fixture
def feed(scheduler, clocks):
    return Feed(scheduler, lambda: clocks.monotonic, lambda: clocks.wall)


def read(feed, version=0, next_sample=0):
    news = feed.wait(version, next_sample, 0)
    samples = None if news.samples is None else json.loads(news.samples)
    return None if news.state is None else json.loads(news.state), samples, news


def shares(sample):
    return sample["devices"]["GPU-a"]["shares"]


def test_a_new_reader_gets_the_state_and_all_samples_and_another_those_that_are_new(feed, scheduler, clocks):
    scheduler.here = [container("a"), container("b", "eval")]
    scheduler.samples = [(second, {"a": (4, 3)}) for second in range(100, 250)]  # more than one answer holds
    feed.poll()
    state, samples, news = read(feed)
    assert (state["policy"], state["numbers"], state["away"], state["heard"]) == ("fifo", {"a": 0}, None, 1000)
    assert state["names"] == {"a": "a's name", "b": "eval"}
    assert state["host"]
    assert [sample["time"] for sample in samples["samples"]] == list(range(100, 250))
    assert samples["first"] is True
    assert shares(samples["samples"][0]) == [[0, 4, 3]]
    assert (news.version, news.next_sample) == (1, 250)

    scheduler.samples.append((250, {}))
    clocks.monotonic += 1
    feed.poll()
    samples, news = read(feed, news.version, news.next_sample)[1:]
    assert [sample["time"] for sample in samples["samples"]] == [250]
    assert (samples["first"], news.next_sample) == (False, 251)


def test_who_has_read_everything_hears_how_long_nobody_answered(feed, clocks):
    feed.poll()
    news = read(feed)[2]
    clocks.monotonic += 4
    state, samples, news = read(feed, news.version, news.next_sample)
    assert (state, samples, news.silence) == (None, None, 4.0)


def test_a_colour_stays_with_its_container_also_when_the_scheduler_counts_anew(feed, scheduler):
    scheduler.samples = [(100, {"a": (1, 1), "b": (2, 2)})]
    feed.poll()
    scheduler.samples = [(101, {"b": (2, 2), "c": (3, 3)})]  # numbers 0 and 1 there
    feed.poll()
    state, samples, _ = read(feed)
    assert state["numbers"] == {"a": 0, "b": 1, "c": 2}
    assert [sorted(shares(sample)) for sample in samples["samples"]] == [[[0, 1, 1], [1, 2, 2]], [[1, 2, 2], [2, 3, 3]]]


def test_a_container_that_is_gone_keeps_its_name(feed, scheduler):
    scheduler.past = [("removed", "v1", "train")]
    feed.poll()
    assert read(feed)[0]["names"] == {"v1": "train"}


def test_names_have_a_bound(feed, scheduler):
    scheduler.samples = [(100, {f"c{number}": (1, 1) for number in range(MAX_NAMES + 5)})]
    feed.poll()
    state = read(feed)[0]
    assert len(state["names"]) == len(state["numbers"]) == MAX_NAMES


def test_a_longer_span_has_the_same_numbers(feed, scheduler):
    scheduler.samples = [(100, {"a": (1, 1)})]
    feed.poll()
    scheduler.samples = [(96, {"b": (2, 2)}), (108, {"a": (1, 1), "b": (2, 2)})]
    numbers = [sorted(share.number for share in sample.devices["GPU-a"].shares) for sample in feed.past(12)]
    assert numbers == [[1], [0, 1]]


def test_the_sum_of_all_others_stays_what_it_is(feed, scheduler, monkeypatch):
    sample = UsageSample(5, {"GPU-a": DeviceUsage(1, 0, 0, (UsedShare(OTHERS, 3, 2),))})
    monkeypatch.setattr(scheduler, "usage", lambda *_: Usage(step=1, samples=(sample,)))
    assert feed.past(1) == [sample]


@pytest.mark.parametrize("failure", [Unavailable("no answer"), Refused("no answer")])
def test_away_and_back(feed, scheduler, clocks, failure):
    scheduler.here = [container("a")]
    scheduler.samples = [(100, {})]
    feed.poll()
    scheduler.failure = failure
    for _ in range(3):
        clocks.monotonic += 1
        clocks.wall += 1
        feed.poll()
    state, samples, _ = read(feed)
    assert (state["away"], state["heard"]) == ({"since": 1001.0, "text": "no answer"}, 1000.0)
    assert [one["name"] for one in state["containers"]] == ["a"]
    assert len(samples["samples"]) == 1
    scheduler.failure = None
    feed.poll()
    assert read(feed)[0]["away"] is None


def test_events_go_on_and_begin_again_with_another_scheduler(feed, scheduler):
    scheduler.past = ["created", "mounted", "started"]
    feed.poll()
    scheduler.past.append("paused")
    feed.poll()
    kinds = [event["kind"] for event in read(feed)[0]["events"]]
    assert kinds == ["created", "mounted", "started", "paused"]
    scheduler.past = ["mounted"]
    feed.poll()
    assert [event["kind"] for event in read(feed)[0]["events"]] == [*kinds, "mounted"]


def test_only_the_newest_events_are_kept(feed, scheduler):
    scheduler.past = ["accepted"] * (MAX_EVENTS + 5)
    feed.poll()
    events = read(feed)[0]["events"]
    assert (len(events), events[-1]["sequence"]) == (MAX_EVENTS, MAX_EVENTS + 5)


def test_a_closed_feed_lets_everybody_go(feed):
    feed.close()
    feed.run()
    assert feed.wait(0, 0, 60).state is None
