"""One comparison of packed sizes says the same as a comparison for each device."""

import random

import pytest

from convgpu.core.memory.bankers import Claim
from convgpu.core.memory.claim_table import Lanes

LARGEST = (1 << 64) - 1


@pytest.mark.parametrize(
    ("free", "need", "holds"),
    [
        ({"a": 5}, (("a", 5),), True),
        ({"a": 5}, (("a", 6),), False),
        ({"a": 0}, (), True),
        ({"a": -3, "b": 2}, (("b", 2),), True),
        ({"a": -3, "b": 2}, (("a", 1), ("b", 2)), False),
        ({"a": -LARGEST, "b": LARGEST}, (("b", LARGEST),), True),
        ({"a": LARGEST, "b": LARGEST - 1}, (("b", LARGEST),), False),
        ({"a": 0, "b": 32 * LARGEST}, (("a", 1),), False),
    ],
)
def test_borders(free: dict[str, int], need: tuple[tuple[str, int], ...], holds: bool) -> None:
    lanes = Lanes(free)
    left = lanes.pack_free(free) - lanes.pack_need(need)
    assert (left & lanes.guards == lanes.guards) == holds == Claim((), need).fits(free)


def test_grants_that_come_back_are_added() -> None:
    draw = random.Random(1)  # noqa: S311 - sizes, not a secret
    devices = [f"g{number}" for number in range(8)]
    lanes = Lanes(devices)
    for _ in range(200):
        free = {device: draw.randint(-4, 8) for device in devices}
        packed = lanes.pack_free(free)
        for _ in range(20):
            chosen = draw.sample(devices, draw.randint(0, 3))
            need = tuple((device, draw.randint(1, 12)) for device in chosen)
            left = packed - lanes.pack_need(need)
            assert (left & lanes.guards == lanes.guards) == Claim((), need).fits(free)
            granted = tuple((device, draw.randint(-1, 2)) for device in draw.sample(devices, 2))
            packed += lanes.pack(granted)
            for device, size in granted:
                free[device] += size
