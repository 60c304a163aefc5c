from typing import Any

import pytest

from convgpu.cli.demo.report import columns_within
from convgpu.cli.demo.timeline import (
    ASCII,
    COLUMNS,
    Pause,
    Stop,
    Timeline,
    axis,
    bar,
    build_timelines,
    problems,
    span,
    table_rows,
)
from convgpu.protocol.records import Event

GIB = 1 << 30
CAST = {"volume-a": ("A", 7 * GIB), "volume-c": ("C", 6 * GIB)}


def history(*rows: tuple[float, str, str] | tuple[float, str, str, dict[str, Any]]) -> list[Event]:
    """Events from (time, kind, container[, further fields])."""
    return [
        Event(sequence=number, time=row[0], kind=row[1], container=row[2], **(row[3] if len(row) > 3 else {}))
        for number, row in enumerate(rows)
    ]


A = Timeline("A", 7 * GIB, started=0.0, ended=5.0)
C = Timeline("C", 6 * GIB, started=1.0, pauses=(Pause(2 * GIB, 1.5, 5.0, granted=True),), ended=8.0)


def test_stories_are_told_from_events_of_the_cast_alone() -> None:
    asked = {"pid": 7, "uuid": "GPU-a", "size": 2 * GIB}
    events = history(
        (99.0, "paused", "foreign", asked),
        (100.0, "mounted", "volume-a"),
        (100.4, "started", "volume-a"),
        (101.0, "mounted", "volume-c"),
        (101.5, "paused", "volume-c", asked),
        (101.6, "rejected", "volume-c", {"pid": 7, "reason": "limit"}),
        (105.0, "ended", "volume-a"),
        (105.0, "granted", "volume-c", {**asked, "waited": 3.5}),
        (108.0, "ended", "volume-c"),
    )
    assert build_timelines(reversed(events), CAST) == (A, C)


def test_pauses_of_several_threads_end_each_at_its_own_time() -> None:
    one = {"cause": "s1.r1", "pid": 7, "uuid": "GPU-a", "size": GIB}
    two = {"cause": "s1.r2", "pid": 7, "uuid": "GPU-a", "size": 2 * GIB}
    three = {"cause": "s1.r3", "pid": 7, "uuid": "GPU-a", "size": GIB}
    events = history(
        (10.0, "started", "volume-c"),
        (11.0, "paused", "volume-c", one),
        (12.0, "paused", "volume-c", two),
        (13.0, "paused", "volume-c", three),
        (14.0, "granted", "volume-c", two),
        (15.0, "rejected", "volume-c", {**three, "reason": "deadline"}),
        (16.0, "ended", "volume-c"),
    )
    pauses = (
        Pause(GIB, 1.0, 6.0, granted=False),
        Pause(2 * GIB, 2.0, 4.0, granted=True),
        Pause(GIB, 3.0, 5.0, granted=False),
    )
    assert build_timelines(events, {"volume-c": ("C", 6 * GIB)}) == (Timeline("C", 6 * GIB, 0.0, pauses, 6.0),)


def test_a_container_that_never_came_has_an_empty_story() -> None:
    assert build_timelines([], CAST) == (Timeline("A", 7 * GIB), Timeline("C", 6 * GIB))


def test_a_pause_and_its_end_is_a_demonstration() -> None:
    assert problems([A, C], {"A": 0, "C": 0}) == ()


WAITS = Timeline("C", 6 * GIB, 1.0, (Pause(GIB, 1.5, 8.0, granted=False),), 8.0)


@pytest.mark.parametrize(
    ("timelines", "exits", "expected"),
    [
        ([A], {"A": 0}, ("no allocation was paused",)),
        ([WAITS], {"C": 137}, ("an allocation was paused, but none went on", "C ended with exit code 137")),
        ([C, A], {"C": 0}, ("A did not end in time",)),
        (
            [C, Timeline("D", GIB, started=2.0)],
            {"C": 0, "D": 0},
            ("the scheduler did not report the end of D",),
        ),
    ],
)
def test_everything_else_is_not(
    timelines: list[Timeline], exits: dict[str, int | None], expected: tuple[str, ...]
) -> None:
    assert problems(timelines, exits) == expected


def test_the_table_has_a_row_for_each_pause() -> None:
    twice = Timeline(
        "D", GIB // 2, 0.0, (Pause(GIB, 1.0, 2.0, granted=True), Pause(GIB, 3.0, 3.5, granted=False)), None
    )
    assert table_rows([A, C, twice], {"A": 0, "C": 1}) == [
        ("A", "7GiB", "0.0s", "", "", "5.0s", "0"),
        ("C", "6GiB", "1.0s", "1.5s (2GiB)", "5.0s", "8.0s", "1"),
        ("D", "512MiB", "0.0s", "1.0s (1GiB)", "2.0s", "-", "-"),
        ("", "", "", "3.0s (1GiB)", "-", "", ""),
    ]


def test_the_span_ends_with_the_last_thing_that_happened() -> None:
    assert (span([]), span([A, C]), span([Timeline("D", 1, 0.0, (Pause(1, 9.0),))])) == (0.0, 8.0, 9.0)


@pytest.mark.parametrize(
    ("timeline", "expected"),
    [
        (A, "##########      "),
        (C, "  #.......######"),
        (Timeline("D", 1), "                "),
        (Timeline("D", 1, 0.0, (Pause(1, 4.0, 4.001, granted=True),), 8.0), "########.#######"),
        (Timeline("D", 1, 0.0, (Pause(1, 6.0),)), "############...."),
        (Timeline("D", 1, 8.0, (), 8.0), "               #"),
    ],
)
def test_a_bar_shows_running_and_paused(timeline: Timeline, expected: str) -> None:
    assert bar(timeline, 8.0, 16, ASCII) == expected


@pytest.mark.parametrize(
    ("length", "width", "expected"),
    [
        (8.0, 16, ("|         |", "0         5 s")),
        (8.0, 32, ("|       |       |       |", "0       2       4       6 s")),
        (25.0, 20, ("|       |       |", "0       10      20 s")),
        (0.0, 20, ("|", "0 s")),
    ],
)
def test_the_axis_names_seconds(length: float, width: int, expected: tuple[str, str]) -> None:
    assert axis(length, width) == expected


def test_memory_that_left_is_a_stop_with_its_size_and_has_a_colour_of_its_own() -> None:
    events = history(
        (100.0, "mounted", "volume-a"),
        (102.0, "suspended", "volume-a", {"reason": "idle"}),
        (102.5, "evicted", "volume-a", {"uuid": "GPU-a", "size": 2 * GIB}),
        (103.0, "evicted", "volume-a", {"uuid": "GPU-a", "size": GIB}),
        (106.0, "resumed", "volume-a", {"waited": 4.0}),
        (108.0, "ended", "volume-a"),
    )
    [seen, _] = build_timelines(events, CAST)
    assert seen.stops == (Stop(3 * GIB, 2.0, 6.0),)
    assert bar(seen, 8.0, 8, ASCII) == "##oooo##"
    assert problems([seen], {"A": 0}, may_leave=True) == ()
    assert problems([A], {"A": 0}, may_leave=True) == (
        "no memory left the GPU: it needs twice the promise (CONVGPU_OVERSUBSCRIBE=2)",
    )


@pytest.mark.parametrize(
    ("room", "without"),
    [
        (80, set()),
        (62, {"STARTED"}),
        (51, {"STARTED", "EXIT"}),
        (40, {"STARTED", "EXIT", "ENDED", "LIMIT"}),
        (10, {"STARTED", "EXIT", "ENDED", "LIMIT"}),
    ],
)
def test_a_narrow_terminal_shows_the_pauses_whole(room: int, without: set[str]) -> None:
    line = ("A", "7GiB", "0.0s", "2.5s (512MiB)", "4.3s", "8.6s", "0")
    shown = [COLUMNS[place] for place in columns_within([line], room)]
    assert shown == [name for name in COLUMNS if name not in without]
