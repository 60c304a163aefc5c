"""The table in C answers as the one in Python does, whatever was put into it before."""

import random

import pytest
from built import build_hook

from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.claim_table import PlainClaimTable
from convgpu.daemon.system.native_claims import SafetyLibrary


@pytest.fixture(scope="module")
def library() -> SafetyLibrary:
    return SafetyLibrary(build_hook() / "libconvgpu-safety.so")


def draw_sizes(draw: random.Random, devices: list[str], largest: int) -> Sizes:
    chosen = draw.sample(devices, draw.randint(0, len(devices)))
    return tuple((device, draw.randint(1, largest)) for device in chosen)


@pytest.mark.parametrize("seed", range(40))
def test_answers_equal_those_in_python(seed: int, library: SafetyLibrary) -> None:
    draw = random.Random(seed)  # noqa: S311 - a history, not a secret
    devices = [f"g{number}" for number in range(draw.choice([1, 2, 3, 8, 63]))]
    largest = draw.choice([10, 1 << 20, (1 << 63) - 1])
    plain, native = PlainClaimTable(devices), library.make_table(devices)
    answers = set()
    for _ in range(400):
        name = f"c{draw.randrange(90)}"
        claim = None
        if draw.random() < 0.7:
            granted = draw_sizes(draw, devices, max(largest // 8, 1))
            claim = Claim(granted, draw_sizes(draw, devices, largest))
        plain.put(name, claim)
        native.put(name, claim)
        free = {device: draw.randint(-largest // 8, largest) for device in devices}
        need, device = draw_sizes(draw, devices, largest), draw.choice(devices)
        size = draw.choice([0, draw.randint(0, largest)])
        answer = native.can_end(need, device, size, free)
        assert answer == plain.can_end(need, device, size, free)
        answers.add(answer)
    assert answers == {True, False}


def test_each_holder_ends_once_the_one_before_it_has(library: SafetyLibrary) -> None:
    """The order of their needs on one device is the reverse of the order in which they can end."""
    length = 1000
    table = library.make_table(["a", "b"])
    for number in range(length):
        table.put(f"c{number}", Claim((("b", 1),), (("a", length - number), ("b", number + 1))))
    free = {"a": length, "b": 1}
    assert table.can_end((("b", length + 1),), "a", 0, free)
    assert not table.can_end((("b", length + 1),), "a", 1, free)
    assert not table.can_end((("b", length + 2),), "a", 0, free)


def test_sums_of_sizes_are_not_bounded_by_those_of_one(library: SafetyLibrary) -> None:
    table, most = library.make_table(["a", "b"]), (1 << 63) - 1
    for number in range(8):
        table.put(f"c{number}", Claim((("a", most),), (("b", most),)))
    assert table.can_end((("a", most),), "a", most, {"a": -most, "b": most})
    assert not table.can_end((("a", most),), "a", 0, {"a": -most, "b": most - 1})


def test_a_claim_that_is_gone_counts_no_more(library: SafetyLibrary) -> None:
    table = library.make_table(["a"])
    table.put("holder", Claim((("a", 5),), (("a", 1),)))
    assert table.can_end((("a", 6),), "a", 0, {"a": 1})
    table.put("holder", None)
    table.put("nobody", None)
    assert not table.can_end((("a", 6),), "a", 0, {"a": 1})
    table.put("next", Claim((("a", 5),), ()))
    assert table.can_end((("a", 6),), "a", 0, {"a": 1})
