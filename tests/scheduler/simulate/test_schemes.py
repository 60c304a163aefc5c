"""Jobs on one device of 140 GiB under ConvGPU and without it; times are added up by hand."""

import random

import pytest

from convgpu.simulate.baselines import FailAndRetry, OneAtATime, WholeLimitFirst
from convgpu.simulate.engine import Scheme, Simulation, StandsStillError
from convgpu.simulate.managed import Managed
from convgpu.simulate.workload import CAPACITY, CONTAINERS, DEVICES, GIB, MODELS, Job, Phase, draw_jobs

SCHEMES = {
    "managed": lambda: Managed("fifo", seed=1, starvation_timeout=60.0),
    "fail and retry": FailAndRetry,
    "whole limit first": WholeLimitFirst,
    "one at a time": OneAtATime,
}


def job(number: int, arrival: float, *phases: tuple[int, float], limit: int = 0) -> Job:
    """`phases` and `limit` in GiB; without a limit it is the need."""
    made = [Phase(size * GIB, seconds) for size, seconds in phases]
    return Job(number, arrival, "g0", made, limit * GIB or sum(phase.size for phase in made))


def play(scheme: Scheme, *jobs: Job, restart: float = 0.0) -> Simulation:
    simulation = Simulation(list(jobs), scheme, restart)
    simulation.run()
    return simulation


@pytest.mark.parametrize("name", SCHEMES)
def test_a_job_that_is_alone_waits_for_nothing(name: str) -> None:
    simulation = play(SCHEMES[name](), job(1, 5.0, (10, 30.0), (20, 60.0)))
    assert [one.end for one in simulation.jobs] == [95.0]
    assert simulation.jobs[0].wait == 0.0
    assert simulation.shares["working"] == (10 * 30 + 30 * 60) * GIB


def test_a_managed_job_is_paused_until_the_other_ends() -> None:
    first, second = job(1, 0.0, (100, 50.0)), job(2, 10.0, (30, 10.0), (70, 10.0))
    simulation = play(SCHEMES["managed"](), first, second)
    assert (first.end, second.end) == (50.0, 60.0)
    assert second.wait == 30.0
    assert simulation.shares["paused"] == 30 * 30 * GIB
    assert simulation.failures == 0


def test_a_job_that_fails_loses_its_work_and_starts_again_after_back_off_and_restart() -> None:
    first, second = job(1, 0.0, (100, 50.0)), job(2, 10.0, (30, 20.0), (70, 10.0))
    simulation = play(FailAndRetry(), first, second, restart=3.0)
    # It fails at 30, begins again at 30 + 5 + 3 with 30 GiB, and at 58 the first has ended.
    assert (first.end, second.end) == (50.0, 68.0)
    assert simulation.failures == 1
    assert simulation.shares["lost"] == 30 * 20 * GIB


def test_a_job_that_needs_its_whole_limit_lets_a_smaller_one_pass() -> None:
    first, second, third = job(1, 0.0, (100, 50.0)), job(2, 1.0, (41, 10.0)), job(3, 2.0, (40, 10.0))
    play(WholeLimitFirst(), first, second, third)
    assert (first.end, second.end, third.end) == (50.0, 60.0, 12.0)


def test_jobs_one_at_a_time_run_in_the_order_of_arrival() -> None:
    first, second, third = job(1, 0.0, (1, 50.0)), job(2, 1.0, (1, 10.0)), job(3, 2.0, (1, 10.0))
    play(OneAtATime(), first, second, third)
    assert (first.end, second.end, third.end) == (50.0, 60.0, 70.0)


def test_a_job_that_is_never_served_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="never served"):
        play(WholeLimitFirst(), job(1, 0.0, (10, 1.0), limit=141))


class Refusing(FailAndRetry):
    def allocate(self, job: Job, size: int) -> None:  # noqa: ARG002 - whatever it is
        self.simulation.refuse(job)


def test_jobs_that_only_fail_and_start_again_stand_still() -> None:
    with pytest.raises(StandsStillError, match="0 of 1 jobs ended"):
        play(Refusing(), job(1, 0.0, (1, 1.0)))


def test_the_same_seed_draws_the_same_jobs_in_bytes_within_the_capacity() -> None:
    def draw(seed: int) -> list[Job]:
        return draw_jobs(MODELS[2], random.Random(seed))  # noqa: S311 - a workload that repeats

    jobs = draw(3)
    assert jobs == draw(3)
    assert jobs != draw(4)
    assert len(jobs) == CONTAINERS
    assert {one.device for one in jobs} == {f"g{number}" for number in range(DEVICES)}
    assert all(4 * GIB <= one.need <= one.limit <= CAPACITY for one in jobs)
