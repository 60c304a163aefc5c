"""The order of jobs by each ranking."""

import math
from dataclasses import dataclass, field

import pytest

from convgpu.ranking import (
    FirstCome,
    History,
    JobKind,
    LeastAttainedService,
    Ranking,
    ShortestRemainingService,
    ShortestRemainingTime,
    geometric_levels,
    order,
)
from convgpu.ranking.history import LEAST_RUNS, MOST_RUNS, Durations


@dataclass
class Job:
    name: str
    submitted: float = 0.0
    cards: float = 1.0
    attained: float = 0.0
    remaining: float = math.inf
    running: bool = field(default=False)


def names(ranking: Ranking, *jobs: Job) -> list[str]:
    return [job.name for job in order(jobs, ranking)]


def test_first_come_orders_by_submission_and_keeps_the_order_of_equals() -> None:
    assert names(FirstCome(), Job("b", 2), Job("a", 1), Job("c", 2)) == ["a", "b", "c"]
    assert FirstCome().next_change(Job("a")) == math.inf


def test_shortest_remaining_time_and_service_differ_by_the_number_of_cards() -> None:
    wide, narrow = Job("wide", cards=8, remaining=10), Job("narrow", cards=1, remaining=20)
    assert names(ShortestRemainingTime(), narrow, wide) == ["wide", "narrow"]
    assert names(ShortestRemainingService(), wide, narrow) == ["narrow", "wide"]


def test_least_attained_service_orders_by_level_and_prefers_whoever_runs() -> None:
    ranking = LeastAttainedService((100, 1000))
    jobs = (
        Job("old", attained=5000),
        Job("waits", attained=50),
        Job("runs", attained=99, running=True),
        Job("middle", attained=100),
    )
    assert names(ranking, *jobs) == ["runs", "waits", "middle", "old"]


@pytest.mark.parametrize(
    ("attained", "cards", "seconds"), [(0, 1, 100), (40, 2, 30), (100, 1, 900), (1000, 4, math.inf)]
)
def test_a_level_ends_after_its_service(attained: float, cards: float, seconds: float) -> None:
    job = Job("a", attained=attained, cards=cards)
    assert LeastAttainedService((100, 1000)).next_change(job) == seconds


def test_levels_grow_geometrically() -> None:
    assert geometric_levels(10, 2, 4) == (10, 20, 40)


@pytest.mark.parametrize("bad", [(0, 2, 3), (10, 1, 3), (10, 2, 0)])
def test_levels_that_do_not_grow_are_refused(bad: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="levels need"):
        geometric_levels(*bad)


def test_history_compares_predicted_with_attained_service() -> None:
    ranking = History((100, 1000))
    jobs = (
        Job("unknown-new"),
        Job("unknown-old", attained=2000),
        Job("short", remaining=50),
        Job("long", remaining=5000),
    )
    assert names(ranking, *jobs) == ["unknown-new", "short", "unknown-old", "long"]
    assert ranking.next_change(Job("known", remaining=5)) == math.inf
    assert ranking.next_change(Job("unknown")) == 100


def test_a_kind_is_known_after_three_runs_and_forgets_old_ones() -> None:
    kind, durations = JobKind("ann", "image", "train.py", 1), Durations()
    for seconds in (10, 20):
        durations.add(kind, seconds)
    assert durations.expected(kind) == math.inf
    durations.add(kind, 60)
    assert (LEAST_RUNS, durations.expected(kind)) == (3, 20)
    for _ in range(MOST_RUNS):
        durations.add(kind, 7)
    assert durations.runs[kind] == [7] * MOST_RUNS
