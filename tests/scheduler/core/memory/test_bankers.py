"""Claims finish as they fit, and no choice of claims makes that expensive."""

import random

from convgpu.core.memory import bankers
from convgpu.core.memory.bankers import Claim


class Size(int):
    """Bytes that count how often they are compared."""

    comparisons = 0

    def __gt__(self, other: int) -> bool:
        Size.comparisons += 1
        return int(self) > other

    def __le__(self, other: int) -> bool:
        Size.comparisons += 1
        return int(self) <= other


def chain(length: int) -> list[Claim]:
    """Each can end only after the next in the list: as many passes as claims."""
    return [Claim((("a", 1),), (("a", Size(number)),)) for number in range(length, 0, -1)]


def test_a_chain_of_claims_is_looked_at_a_few_times_each() -> None:
    Size.comparisons = 0
    work = {"a": 1}
    assert bankers.finish_feasible(work, chain(500)) == []
    assert work == {"a": 501}
    assert Size.comparisons < 500 * 20


def test_stuck_claims_keep_their_order() -> None:
    claims = [Claim((("a", 1),), (("a", 1000 + number),)) for number in (5, 3, 4)]
    assert bankers.finish_feasible({"a": 0}, claims + chain(0)) == claims
    mixed = [claims[0], *chain(50), *claims[1:]]
    assert bankers.finish_feasible({"a": 1}, mixed) == claims


def test_the_end_does_not_depend_on_the_order() -> None:
    draw = random.Random(1)  # noqa: S311 - claims, not secrets
    for _ in range(300):
        devices = ["a", "b", "c"][: draw.randint(1, 3)]
        claims = [
            Claim(
                tuple((device, draw.randint(1, 5)) for device in devices),
                tuple((device, draw.randint(1, 40)) for device in devices if draw.random() < 0.7),
            )
            for _ in range(draw.randint(0, 30))
        ]
        free = {device: draw.randint(0, 12) for device in devices}
        stuck = bankers.finish_feasible(work := dict(free), claims)
        shuffled = draw.sample(claims, len(claims))
        assert set(bankers.finish_feasible(again := dict(free), shuffled)) == set(stuck)
        assert work == again
        assert not any(claim.fits(work) for claim in stuck)
