"""The feed of the page, with a scheduler that answers as it is told and clocks that jump."""

import json

import pytest

from convgpu.cli.serve.feed import MAX_BANDS, MAX_EVENTS, OTHERS, Feed
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.records import Container, Device, Devices, Event, Events, Share

GIB = 1 << 30


def container(name, grant, usage=0, uuid="GPU-a"):
    share = Share(uuid=uuid, limit=grant, grant=grant, usage=usage)
    return Container(name=name, mountpoint="/", created=1.0, state="running", devices=(share,))


class ToldScheduler:
    def __init__(self):
        self.here = []
        self.past = []
        self.first = 1
        self.failure = None

    def devices(self):
        if self.failure:
            raise self.failure
        fields = {"index": 0, "name": "n", "total": GIB, "capacity": GIB, "granted": 0, "used": 0, "settling": 7}
        return Devices(devices=(Device(uuid="GPU-a", **fields),), policy="fifo")

    def containers(self):
        return tuple(self.here)

    def events(self, since=0):
        rows = [Event(sequence=self.first + i, time=1.0, kind=kind) for i, kind in enumerate(self.past)]
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


def test_a_new_reader_gets_the_state_and_all_samples(feed, scheduler, clocks):
    scheduler.here = [container("a", 4, 3), container("b", 0)]
    feed.poll()
    clocks.monotonic += 1
    feed.poll()
    state, samples, news = read(feed)
    assert (state["policy"], state["numbers"], state["away"], state["heard"]) == ("fifo", {"a": 0, "b": 1}, None, 1000)
    device = {"capacity": GIB, "settling": 7, "bands": [[0, 4, 3]]}
    rows = [{"t": second, "devices": {"GPU-a": device}} for second in (100, 101)]
    assert samples == {"first": True, "samples": rows}
    assert (news.version, news.next_sample) == (2, 102)


def test_who_has_read_everything_hears_how_long_nobody_answered(feed, clocks):
    feed.poll()
    news = read(feed)[2]
    clocks.monotonic += 4
    state, samples, news = read(feed, news.version, news.next_sample)
    assert (state, samples, news.silence) == (None, None, 4.0)


def test_one_sample_for_each_second_whatever_the_wall_clock_does(feed, clocks):
    for wall in (1000.0, 5.0, 9e9):
        clocks.wall = wall
        feed.poll()
        feed.poll()
        clocks.monotonic += 1
    state, samples, _ = read(feed)
    assert [sample["t"] for sample in samples["samples"]] == [100, 101, 102]
    assert state["time"] == 9e9


def test_a_colour_stays_with_its_container_and_is_not_given_again(feed, scheduler):
    scheduler.here = [container("a", 1), container("b", 1)]
    feed.poll()
    scheduler.here = [container("b", 1), container("c", 1)]
    feed.poll()
    assert read(feed)[0]["numbers"] == {"b": 1, "c": 2}


def test_small_grants_are_one_band(feed, scheduler):
    scheduler.here = [container(f"c{i}", 100 + i, 1) for i in range(MAX_BANDS + 3)]
    feed.poll()
    bands = read(feed)[1]["samples"][0]["devices"]["GPU-a"]["bands"]
    assert (len(bands), bands[0], bands[-1]) == (MAX_BANDS + 1, [3, 103, 1], [OTHERS, 100 + 101 + 102, 3])


def test_a_grant_on_a_device_that_is_gone_is_passed_over(feed, scheduler):
    scheduler.here = [container("a", 1, uuid="GPU-gone")]
    feed.poll()
    assert read(feed)[1]["samples"][0]["devices"]["GPU-a"]["bands"] == []


@pytest.mark.parametrize("failure", [Unavailable("no answer"), Refused("no answer")])
def test_away_and_back(feed, scheduler, clocks, failure):
    scheduler.here = [container("a", 1)]
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
