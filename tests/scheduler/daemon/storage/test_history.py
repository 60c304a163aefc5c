"""The history of decisions in the database: written in slices, bounded, and found after a restart."""

import asyncio
from pathlib import Path

import pytest
from opened_store import BOUNDS, Later, opened

from convgpu.daemon.storage.history import Bounds, History
from convgpu.daemon.storage.transactions import SLICE
from convgpu.daemon.storage.write_queue import WriteQueue
from convgpu.protocol.requests import ReadHistory


def test_events_are_written_in_slices_and_found_after_a_restart(tmp_path: Path) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        for number in range(3 * SLICE):
            history.add("paused", "a", f"r{number}", uuid="gpu", size=7, pid=9, reason=None)
        assert store.database.rows("SELECT count(*) FROM history") == [(0,)]
        for expected in (SLICE, 2 * SLICE):
            (_, write), later.due = later.due[-1], []
            write()
            [(count,)] = store.database.rows("SELECT count(*) FROM history")
            assert 0 < int(str(count)) <= expected
        before = history.since(1)
        history.close()
    with opened(tmp_path) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        after = history.since(1)
        assert (after["events"], after["next"]) == (before["events"], before["next"])
        event = {"sequence": 1, "time": 5.0, "cause": "r0", "kind": "paused", "container": "a"}
        assert before["events"][0] == event | {"uuid": "gpu", "size": 7, "pid": 9}


def test_numbers_of_events_that_a_killed_scheduler_told_are_not_used_again(tmp_path: Path) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        history.add("created", "a", "x")
        later.pass_time()
        for _ in range(100):
            history.add("paused", "a", "x")
        told = int(str(history.since(1)["next"]))
        store.database._queue = WriteQueue()  # killed
    with opened(tmp_path) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        history.add("ended", "a", "x")
        assert history.since(told)["events"][0]["kind"] == "ended"


def test_history_is_bounded_by_number_and_age(tmp_path: Path) -> None:
    later, now = Later(), 1000.0
    with opened(tmp_path, later) as store:
        history = History(lambda: now, store, Bounds(rows=200, age=50.0))
        for _ in range(1000):
            history.add("paused", "a", "x")
            later.pass_time()
        [(count,)] = store.database.rows("SELECT count(*) FROM history")
        assert 200 <= int(str(count)) <= 200 + 2 * SLICE
        now = 1051.0
        for _ in range(4 * SLICE):
            history.add("ended", "a", "x")
            later.pass_time()
        assert store.database.rows("SELECT count(*) FROM history WHERE kind = 'paused'") == [(0,)]


def test_a_flood_of_events_erases_its_own_container_s_and_not_what_is_told_of_others(tmp_path: Path) -> None:
    later = Later()
    told = [("accepted", "honest"), ("overused", "flooder"), ("stopped", "flooder"), ("policy", "")]
    with opened(tmp_path, later) as store:
        history = History(lambda: 5.0, store, Bounds(rows=200, age=50.0))
        for kind, container in told:
            history.add(kind, container, "x")
        for _ in range(2000):
            history.add("accepted", "flooder", "x")
            later.pass_time()
    with opened(tmp_path, later) as store:  # the next scheduler goes on with the same shares
        history = History(lambda: 5.0, store, Bounds(rows=200, age=50.0))
        for _ in range(2000):
            history.add("accepted", "flooder", "x")
            later.pass_time()
        assert store.database.rows("SELECT kind, container FROM history ORDER BY sequence LIMIT 4") == told
        [(count,)] = store.database.rows("SELECT count(*) FROM history")
        assert 200 <= count <= 200 + 2 * SLICE


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, [1, 2, 3, 4]),
        ({"limit": 2}, [3, 4]),
        ({"container": "a"}, [1, 3]),
        ({"kinds": ("paused", "ended")}, [2, 3]),
        ({"after": 11.0}, [3, 4]),
        ({"container": "b", "kinds": ("created",), "after": 9.0}, [4]),
    ],
)
def test_the_past_is_found_written_or_not(tmp_path: Path, asked: dict[str, object], found: list[int]) -> None:
    now = 9.0

    def clock() -> float:
        return now

    later = Later()
    with opened(tmp_path, later) as store:
        history = History(clock, store, BOUNDS)
        for number, (kind, container) in enumerate(
            [("created", "a"), ("ended", "b"), ("paused", "a"), ("created", "b")], start=1
        ):
            now = 9.0 + number
            history.add(kind, container, "x")
            if number == 2:
                later.pass_time()
        events = asyncio.run(history.past(ReadHistory(**asked)))["events"]
        assert [event["sequence"] for event in events] == found
