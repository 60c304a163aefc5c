from convgpu.policies import BestFit, Fifo, Waiting

FREE = {"g0": 10, "g1": 6}


def waiting(sequence: int, order: int, missing: int, device: str = "g0") -> Waiting:
    return Waiting(sequence, f"c{order}", order, device, sequence, missing, missing, 0.0)


def test_fifo_takes_the_oldest_container_and_in_it_the_oldest_allocation() -> None:
    one, two, three = waiting(1, 2, 10), waiting(2, 1, 1), waiting(3, 1, 9)
    assert Fifo().rank([one, two, three], FREE) == [two, three, one]


def test_best_fit_leaves_the_least_over_on_the_device_and_then_takes_the_oldest() -> None:
    small, exact, same, other = waiting(1, 1, 3), waiting(2, 2, 10), waiting(3, 3, 10), waiting(4, 4, 5, "g1")
    assert BestFit().rank([small, same, exact, other], FREE) == [exact, same, other, small]
