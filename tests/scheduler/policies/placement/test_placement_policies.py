"""Each policy's order for devices of 100 bytes; the first of equal ones by position."""

from itertools import permutations

import pytest

from convgpu.policies.placement import PLACEMENT_POLICIES, Candidate

LIMIT = 30


def candidates(*promised: int, capacity: int = 100, containers: tuple[int, ...] = ()) -> list[Candidate]:
    counts = containers or tuple(int(size > 0) for size in promised)
    return [
        Candidate(f"g{place}", place, LIMIT, capacity, capacity, size, counts[place])
        for place, size in enumerate(promised)
    ]


@pytest.mark.parametrize(
    ("policy", "promised", "containers", "order"),
    [
        ("least-promised", (50, 20, 0), (), "g2 g1 g0"),
        ("least-promised", (20, 20, 20), (), "g0 g1 g2"),
        ("best-fit", (50, 70, 0), (), "g1 g0 g2"),
        ("best-fit", (80, 90, 95), (), "g0 g1 g2"),
        ("best-fit", (80, 90, 60), (), "g2 g0 g1"),
        ("spread", (10, 60, 90), (3, 1, 2), "g1 g2 g0"),
        ("spread", (60, 10, 90), (1, 1, 1), "g1 g0 g2"),
        # Limits of 30 and 70 are typical. 70 fits on g0 even afterwards, on g1 only before; what g2 has left serves 30.
        ("least-fragmentation", (0, 10, 70), (), "g2 g0 g1"),
        ("least-fragmentation", (95, 80, 90), (), "g1 g2 g0"),
    ],
)
def test_order(policy: str, promised: tuple[int, ...], containers: tuple[int, ...], order: str) -> None:
    ranked = PLACEMENT_POLICIES[policy].rank(candidates(*promised, containers=containers), (30, 70))
    assert [candidate.device for candidate in ranked] == order.split()


def test_a_larger_device_has_more_to_promise() -> None:
    small, large = Candidate("s", 0, 20, 50, 50, 10, 1), Candidate("l", 1, 20, 200, 200, 60, 4)
    assert [c.device for c in PLACEMENT_POLICIES["least-promised"].rank([small, large], ())] == ["l", "s"]


@pytest.mark.parametrize("policy", sorted(PLACEMENT_POLICIES))
def test_the_order_in_which_candidates_come_does_not_count(policy: str) -> None:
    rows = candidates(50, 20, 20, 80)
    orders = {tuple(c.device for c in PLACEMENT_POLICIES[policy].rank(p, (30, 70))) for p in permutations(rows)}
    assert len(orders) == 1


@pytest.mark.parametrize("policy", sorted(PLACEMENT_POLICIES))
def test_a_first_container_has_no_typical_limits(policy: str) -> None:
    ranked = PLACEMENT_POLICIES[policy].rank(candidates(0, 0), ())
    assert [candidate.device for candidate in ranked] == ["g0", "g1"]
