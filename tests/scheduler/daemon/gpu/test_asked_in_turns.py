"""About more processes than there is time for, those are asked who were not for longest."""

from collections.abc import Sequence

import pytest

from convgpu.daemon.gpu.asked_in_turns import AskedInTurns

MANY = set(range(1, 2001))


class Driver:
    """Takes 10 ms for each process of a request, and says what it holds."""

    def __init__(self) -> None:
        self.holding: dict[int, int] = {}
        self.now = 0.0
        self.asked: list[int] = []
        self.error: Exception | None = None

    def ask(self, pids: Sequence[int]) -> dict[int, int]:
        if self.error:
            raise self.error
        assert 0 < len(pids) <= 200
        self.now += 0.01 * len(pids)
        self.asked += pids
        return {pid: self.holding.get(pid, 0) for pid in pids}


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def asked(driver: Driver) -> AskedInTurns:
    return AskedInTurns(driver.ask, 5.0, lambda: driver.now)


def test_a_few_are_all_asked_about_each_time(driver: Driver, asked: AskedInTurns) -> None:
    driver.holding = {1: 5, 3: 7}
    for _ in range(2):
        assert asked.held({1, 2, 3}) == {1: 5, 3: 7}
    assert driver.asked == [1, 2, 3, 1, 2, 3]


def test_who_ended_with_memory_is_asked_about_until_it_is_freed(driver: Driver, asked: AskedInTurns) -> None:
    driver.holding = {1: 5}
    assert asked.held({1, 2}) == {1: 5}
    assert asked.held({2}) == {1: 5}
    driver.holding = {}
    assert asked.held({2}) == {}
    assert asked.held({2}) == {}
    assert driver.asked == [1, 2, 1, 2, 1, 2, 2]


def test_who_ended_just_now_comes_first_however_many_there_are(driver: Driver, asked: AskedInTurns) -> None:
    driver.holding = {5001: 5, 1: 6}
    asked.held(MANY)
    driver.asked.clear()
    assert asked.held(MANY, {5001, 5002})[5001] == 5
    assert driver.asked[:2] == [5001, 5002]
    assert asked.held(MANY)[5001] == 5  # and is remembered


def test_however_many_ended_the_living_have_their_turns(driver: Driver, asked: AskedInTurns) -> None:
    driver.holding = {1: 5, 2000: 6}
    ended = set(range(5000, 8000))
    looks = [asked.held(MANY, ended) for _ in range(12)]
    assert looks[-1] == {1: 5, 2000: 6}


def test_many_are_asked_about_in_turns_and_nobody_is_forgotten(driver: Driver, asked: AskedInTurns) -> None:
    """There are four looks' worth of them, and each look asks for no longer than one request more than its time."""
    driver.holding = {1: 5, 700: 6, 1999: 7}
    looks = [asked.held(MANY) for _ in range(5)]
    assert looks == [{1: 5}, {1: 5, 700: 6}, {1: 5, 700: 6}, driver.holding, driver.holding]
    assert driver.now <= 5 * (5.0 + 2.0)


def test_those_who_come_all_the_time_come_behind_the_others(driver: Driver, asked: AskedInTurns) -> None:
    driver.holding = {2000: 5}
    looks = [asked.held(MANY | set(range(10_000 * look, 10_000 * look + 600))) for look in range(1, 6)]
    assert {2000: 5} in looks


@pytest.mark.parametrize("error", [OSError(None, "status 0x1f"), KeyError("gpu")])
def test_where_nobody_tells_any_more_nothing_is_known(driver: Driver, asked: AskedInTurns, error: Exception) -> None:
    driver.holding = {1: 5}
    asked.held({1})
    driver.error = error
    with pytest.raises(type(error)):
        asked.held({1})
    driver.error = None
    assert asked.held({2}) == {}
