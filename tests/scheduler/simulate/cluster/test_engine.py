"""The simulated cluster: who runs when, and laws that hold for every trace."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convgpu.ranking import FirstCome, LeastAttainedService, ShortestRemainingService
from convgpu.simulate.cluster.engine import Cluster, Scheme
from convgpu.simulate.cluster.jobs import Job, Request
from convgpu.simulate.cluster.metrics import measure
from convgpu.simulate.cluster.schemes import schemes

EXCLUSIVE = Scheme(FirstCome())
SHARED = Scheme(FirstCome(), sharing=9, backfill=True)


def ends(scheme: Scheme, nodes: list[int], *requests: Request) -> list[float]:
    return [round(job.ended, 3) for job in Cluster(scheme, nodes).run(requests)]


def test_jobs_of_an_exclusive_card_run_one_after_the_other() -> None:
    assert ends(EXCLUSIVE, [1], Request("a", 0, 10), Request("b", 1, 5), Request("c", 2, 5)) == [10, 15, 20]


def test_nobody_passes_a_job_that_does_not_fit_without_backfill() -> None:
    jobs = (Request("a", 0, 10), Request("wide", 1, 5, cards=2), Request("small", 2, 3))
    assert ends(EXCLUSIVE, [2], *jobs) == [10, 15, 18]
    assert ends(Scheme(FirstCome(), backfill=True), [2], *jobs) == [10, 15, 5]


def test_jobs_that_share_a_card_run_at_full_speed_until_its_computing_is_used_up() -> None:
    light = [Request(name, 0, 10, memory=0.4, utilisation=0.5) for name in "ab"]
    heavy = [Request(name, 0, 10, memory=0.4, utilisation=1.0) for name in "ab"]
    assert ends(SHARED, [1], *light) == [10, 10]
    assert ends(SHARED, [1], *heavy) == [20, 20]


def test_a_neighbour_that_ends_gives_the_other_its_speed_back() -> None:
    assert ends(SHARED, [1], Request("a", 0, 10, memory=0.5), Request("b", 0, 20, memory=0.5)) == [20, 30]


def test_a_gang_takes_one_node_if_it_fits_and_waits_for_all_its_cards() -> None:
    jobs = (Request("a", 0, 10), Request("gang", 1, 5, cards=4))
    assert ends(SHARED, [4, 4], *jobs) == [10, 6]
    assert ends(SHARED, [4], *jobs) == [10, 15]


def test_who_attained_little_displaces_who_attained_much_and_a_restart_costs() -> None:
    scheme = Scheme(LeastAttainedService((10,)), backfill=True, preemptive=True, restart=2)
    long, short = Cluster(scheme, [1]).run([Request("long", 0, 50), Request("short", 20, 5)])
    assert (short.ended, short.waited, round(long.ended, 3), long.preemptions) == (25, 0, 57, 1)


def test_a_job_that_nobody_disturbs_falls_through_all_its_levels_in_time() -> None:
    scheme = Scheme(LeastAttainedService((10, 20)), backfill=True, preemptive=True, restart=0)
    assert ends(scheme, [1], Request("first", 0, 50), Request("second", 12, 100)) == [70, 150]


def test_a_known_duration_lets_the_shorter_pass() -> None:
    scheme = Scheme(ShortestRemainingService(), preemptive=True, restart=0, knows_durations=True)
    assert ends(scheme, [1], Request("long", 0, 50), Request("short", 10, 5)) == [55, 15]


def test_a_job_that_is_too_wide_is_refused() -> None:
    with pytest.raises(ValueError, match="job a asks for 3 of 2 cards"):
        ends(EXCLUSIVE, [1, 1], Request("a", 0, 1, cards=3))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"memory": 0.0}, "memory is a share"),
        ({"memory": 1.5}, "memory is a share"),
        ({"utilisation": -1.0}, "utilisation is a share"),
        ({"cards": 0}, "0 cards for 1 s"),
        ({"duration": math.inf}, "1 cards for inf s"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(bad: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Request(**{"name": "a", "submitted": 0, "duration": 1, **bad})  # type: ignore[arg-type]


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    share = st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.7, 1.0])
    rows = draw(
        st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60), st.integers(1, 6), share, share), max_size=25)
    )
    return [Request(str(n), at, long, cards, memory, use) for n, (at, long, cards, memory, use) in enumerate(rows)]


class CheckedCluster(Cluster):
    """Checks after each event that no card has more than itself and that gangs are whole."""

    def _plan_touched(self, now: float) -> None:
        cards = self._cards
        assert all(free >= -1e-9 for free in cards.free)
        assert all(len(jobs) <= cards.most for jobs in cards.jobs)
        for job in {job for jobs in cards.jobs for job in jobs}:
            assert len(set(job.on)) == job.request.cards
            assert all(job in cards.jobs[card] for card in job.on)
        super()._plan_touched(now)


@settings(max_examples=150, deadline=None)
@given(traces(), st.sampled_from(sorted(schemes())))
def test_all_work_is_done_once_and_no_card_has_more_than_itself(trace: list[Request], name: str) -> None:
    scheme = schemes(restart=3)[name]
    jobs: list[Job] = CheckedCluster(scheme, [2, 4]).run(trace)
    assert all(job.ended >= job.submitted + job.request.duration - 1e-6 for job in jobs)
    assert all(math.isclose(job.work, 0, abs_tol=1e-5) for job in jobs)
    assert all(job.preemptions == 0 for job in jobs) or scheme.preemptive
    if jobs:
        found = measure(jobs, 6)
        assert 0 <= found.occupied <= 1 + 1e-9
        assert found.completion <= found.completion_p99 + 1e-9 or len(jobs) > 1
