"""One comparison of packed sizes says the same as one for each device; what a walk reads is true of each claim."""

import random

import pytest

from convgpu.core.memory.bankers import Claim
from convgpu.core.memory.claim_table import SLOT_BITS, SLOT_MASK, ClaimTable, Lanes

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


def test_a_table_after_many_changes_is_that_of_what_is_left() -> None:
    draw = random.Random(2)  # noqa: S311 - claims, not a secret
    devices = ["g0", "g1", "g2"]
    table = ClaimTable(devices)
    for _ in range(300):
        sizes = [
            tuple((device, draw.randint(1, 4)) for device in draw.sample(devices, draw.randint(least, 3)))
            for least in (1, 0)
        ]
        table.put(f"c{draw.randint(0, 9)}", draw.choice([None, Claim(sizes[0], sizes[1])]))
    fresh = ClaimTable(devices)
    for name, claim in table.claims.items():
        fresh.put(name, claim)
    assert described(table) == described(fresh)
    assert len(table.names) <= 10  # slots are used again


def described(table: ClaimTable) -> list[object]:
    """Return all that a walk reads, by container in place of its slot."""
    names = {slot: name for name, slot in table.slots.items()}
    by_name = [
        {name: (table.granted[slot], table.asked[slot]) for slot, name in names.items()},
        [{name: needs[slot] for slot, name in names.items()} for needs in table.needs],
        [{name: lacking[slot] for slot, name in names.items()} for lacking in table.lacking],
    ]
    by_need = [
        sorted((size, names[slot]) for size, slot in zip(sizes, slots, strict=True))
        for sizes, slots in zip(table.sizes, table.by_need, strict=True)
    ]
    sole = [sorted((key >> SLOT_BITS, names[key & SLOT_MASK]) for key in keys) for keys in table.sole]
    assert all(sizes == sorted(sizes) for sizes in table.sizes)
    assert all(table.names[slot] == name for slot, name in names.items())
    return [table.claims, table.packed, table.satisfied, by_name, by_need, sole]
