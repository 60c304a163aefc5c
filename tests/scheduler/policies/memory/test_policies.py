from collections import Counter

import pytest

from convgpu.policies.memory import POLICIES, BestFit, Fifo, RandomChoice, RecentUse, WaitingAllocation, make_policy

FREE = {"g0": 10, "g1": 6}


def waiting(sequence: int, order: int, size: int, device: str = "g0") -> WaitingAllocation:
    return WaitingAllocation(sequence, f"c{order}", order, device, sequence, size, 0.0)


def test_fifo_takes_the_oldest_container_and_in_it_the_oldest_allocation() -> None:
    one, two, three = waiting(1, 2, 10), waiting(2, 1, 1), waiting(3, 1, 9)
    assert Fifo().rank([one, two, three], FREE) == [two, three, one]


def test_best_fit_leaves_the_least_over_on_the_device_and_then_takes_the_oldest() -> None:
    small, exact, same, other = waiting(1, 1, 3), waiting(2, 2, 10), waiting(3, 3, 10), waiting(4, 4, 5, "g1")
    assert BestFit().rank([small, same, exact, other], FREE) == [exact, same, other, small]


def test_recent_use_takes_the_container_that_was_paused_last_and_in_it_the_oldest_allocation() -> None:
    one, two, three = waiting(1, 2, 10), waiting(2, 1, 1), waiting(3, 2, 9)
    assert RecentUse().rank([one, two, three], FREE) == [one, three, two]


def test_random_gives_each_container_one_number_and_repeats_itself_with_the_same_seed() -> None:
    many = [waiting(number, number % 3, 1) for number in range(1, 10)]
    once = RandomChoice(seed=7).rank(many, FREE)
    assert once == RandomChoice(seed=7).rank(list(reversed(many)), FREE)
    assert [one.container for one in once[::3]] == [one.container for one in once[1::3]]
    assert [one.sequence for one in once[:3]] == sorted(one.sequence for one in once[:3])


def test_random_is_fair() -> None:
    three = [waiting(number, number, 1) for number in range(1, 4)]
    first = Counter(RandomChoice(seed).rank(three, FREE)[0].sequence for seed in range(3000))
    assert all(900 < count < 1100 for count in first.values()), first


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_is_pure_and_returns_every_allocation(name: str) -> None:
    policy = make_policy(name, seed=1)
    many = [waiting(number, number % 4, number % 7 + 1, f"g{number % 2}") for number in range(1, 30)]
    once = policy.rank(many, FREE)
    assert policy.name == name
    assert once == policy.rank(many, FREE)
    assert sorted(one.sequence for one in once) == list(range(1, 30))
