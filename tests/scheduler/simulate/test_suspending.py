"""Jobs whose memory can leave, on one device of 140 GiB with a bus of 40 GiB/s each way; times are added up by hand."""

import pytest

from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.simulate.engine import Simulation
from convgpu.simulate.suspending import DRAIN, RATE, SLACK, UNBOUNDED, Suspending
from convgpu.simulate.workload import GIB, Job, Phase, capacities


def job(number: int, arrival: float, *phases: tuple[int, float]) -> Job:
    made = [Phase(size * GIB, seconds) for size, seconds in phases]
    return Job(number, arrival, "g0", made, sum(phase.size for phase in made))


def play(*jobs: Job, pool: int = UNBOUNDED, switch_cost: float = 0.0) -> Suspending:
    scheme = Suspending(Machine(capacities(), Fifo(), 60.0, switch_cost=switch_cost), pool)
    Simulation(list(jobs), scheme).run()
    return scheme


def on_bus(size: int) -> float:
    return size * GIB / RATE


def test_all_fits_and_nothing_moves() -> None:
    first, second = job(1, 0.0, (70, 50.0)), job(2, 0.0, (70, 50.0))
    scheme = play(first, second, switch_cost=0.05)
    assert (first.wait, second.wait, scheme.switches, scheme.moved) == (0.0, 0.0, 0, 0)


def test_a_job_that_waits_leaves_for_one_that_can_run_and_comes_back_when_its_turn_comes() -> None:
    first, waits, comer = job(1, 0.0, (100, 50.0)), job(2, 10.0, (30, 10.0), (70, 10.0)), job(3, 21.0, (40, 5.0))
    scheme = play(first, waits, comer)
    assert first.end == 50.0
    assert comer.wait == pytest.approx(DRAIN + on_bus(30))
    assert scheme.moved == 30 * GIB  # only as much as is lacking, which is all that it has
    assert waits.end == pytest.approx(60.0 + on_bus(30))
    assert (scheme.switches, scheme.preempted) == (1, 0)


def test_busy_jobs_take_turns_and_lose_no_more_than_the_share_of_a_switch() -> None:
    jobs = [job(number, 0.0, (100, 300.0)) for number in (1, 2)]
    scheme = play(*jobs, switch_cost=0.05)
    assert scheme.preempted > 2
    assert max(one.end for one in jobs) <= 600.0 * 1.06
    assert min(one.end for one in jobs) > 500.0  # neither is made to wait for the end of the other


def test_no_more_is_out_than_the_host_has_room_for() -> None:
    jobs = [job(number, number, (60, 20.0), (60, 20.0)) for number in range(1, 7)]
    scheme = play(*jobs, pool=40 * GIB, switch_cost=0.05)
    assert 0 < scheme.most_out <= 40 * GIB + SLACK
    assert all(one.end > 0 for one in jobs)
