"""Whose managed memory is that NVML counts for nobody: tables of the pure part."""

from collections.abc import Mapping

import pytest

from convgpu.core.audit.attribution import NOISE, TOLERATED, UNCOUNTED, MemorySample, attribute
from convgpu.core.audit.managed import Mapped, add_imported, complete, find_ownerless

GIB = 1 << 30
CONTEXT = 518 << 20
OWN = {"x": GIB, "y": GIB}


def sample(
    ownerless: int, held: Mapping[int, int], device: str = "x", ended: Mapping[int, int] | None = None
) -> MemorySample:
    """A device of 80 GiB that has so much in use which is nobody's."""
    listed = {**held, **(ended or {})}
    used = OWN[device] + sum(listed.values()) + UNCOUNTED * len(listed) + ownerless
    return MemorySample(device, 80 * GIB, used, held, ended=ended or {}, starts=dict.fromkeys(held, 7))


def mapped(sizes: Mapping[int, int], devices: frozenset[str] = frozenset({"x"})) -> dict[int, Mapped]:
    return {pid: Mapped(size, 7, devices) for pid, size in sizes.items()}


def test_what_is_nobodys() -> None:
    """The driver's own is not, nor what processes have by our ledger, nor what the dead are listed with."""
    used = {1: {"x": CONTEXT + 2 * GIB}, 2: {"x": CONTEXT}}
    samples = [sample(5 * GIB, {1: CONTEXT, 2: CONTEXT}, ended={3: GIB}), sample(GIB, {}, "y")]
    assert find_ownerless(samples, used, OWN) == {"x": 3 * GIB, "y": GIB}
    assert find_ownerless([sample(GIB, {1: CONTEXT})], used, OWN) == {"x": 0}
    assert find_ownerless([MemorySample("x", used=9 * GIB)], {}, OWN) == {}


@pytest.mark.parametrize(
    ("ownerless", "sizes", "used", "more"),
    [
        # What it maps may lie on the host: it has no more than is there without an owner.
        (3 * GIB, {1: 5 * GIB}, {}, {1: 3 * GIB}),
        (5 * GIB, {1: 3 * GIB}, {}, {1: 3 * GIB}),
        (3 * GIB, {1: 1 << 62}, {}, {1: 3 * GIB}),  # its mappings have no end
        (0, {1: 5 * GIB}, {}, {}),
        (3 * GIB, {1: 2 << 20, 2: 3 * GIB}, {}, {2: 3 * GIB}),  # each context maps 2 MiB
        (3 * GIB, {1: NOISE}, {}, {}),
        (5 * GIB, {1: 3 * GIB, 2: 4 * GIB}, {}, {1: 3 * GIB, 2: 4 * GIB}),
        # What the hook accounts for is not counted twice.
        (3 * GIB, {1: 3 * GIB}, {1: CONTEXT + 3 * GIB}, {}),
        (3 * GIB, {1: 3 * GIB + NOISE}, {1: CONTEXT + 3 * GIB}, {}),
        (5 * GIB, {1: 3 * GIB + TOLERATED}, {1: CONTEXT + 3 * GIB}, {1: 3 * GIB + TOLERATED}),
        (GIB, {1: TOLERATED}, {1: CONTEXT}, {1: TOLERATED}),
        (9 * GIB, {1: 9 * GIB}, {1: CONTEXT + 3 * GIB}, {1: 9 * GIB}),
        (3 * GIB, {1: 3 * GIB}, {1: CONTEXT}, {1: 3 * GIB}),
        # Another's memory is not its own.
        (3 * GIB, {1: 3 * GIB, 2: 3 * GIB}, {1: CONTEXT + 3 * GIB}, {}),
        (6 * GIB, {1: 3 * GIB, 2: 3 * GIB}, {1: CONTEXT + 3 * GIB}, {2: 3 * GIB}),
    ],
)
def test_who_has_it(ownerless: int, sizes: Mapping[int, int], used: Mapping[int, int], more: Mapping[int, int]) -> None:
    before = sample(ownerless, {1: CONTEXT, 2: CONTEXT})
    [found] = complete([before], mapped(sizes), {pid: {"x": size} for pid, size in used.items()}, OWN, str)
    assert found.held == {pid: CONTEXT + more.get(pid, 0) for pid in (1, 2)}
    assert (found.used, found.starts) == (before.used, before.starts)


@pytest.mark.parametrize(
    ("ownerless", "sizes", "used", "more"),
    [
        # Whoever shares an address space maps the same. To each that is listed, the driver may have taken a little.
        (2 * GIB, {1: 2 * GIB, 2: 2 * GIB, 3: 2 * GIB}, {}, [2 * GIB, 0, 0]),
        (5 * GIB, {1: 2 * GIB, 2: 2 * GIB, 3: 2 * GIB}, {}, [2 * GIB, 2 * GIB, GIB + 2 * UNCOUNTED]),
        # Who has a session comes last, for a little of it would be tolerated.
        (4 * GIB, {1: GIB, 2: 4 * GIB}, {1: CONTEXT}, [0, 4 * GIB, 0]),
        (4 * GIB, {1: GIB, 2: 3 * GIB}, {1: CONTEXT}, [GIB, 3 * GIB, 0]),
    ],
)
def test_a_container_has_no_more_than_is_nobodys(
    ownerless: int, sizes: Mapping[int, int], used: Mapping[int, int], more: list[int]
) -> None:
    before = sample(ownerless, {1: CONTEXT, 2: CONTEXT, 3: CONTEXT})
    accounted = {pid: {"x": size} for pid, size in used.items()}
    [found] = complete([before], mapped(sizes), accounted, OWN, lambda _pid: "a")
    assert found.held == {pid: CONTEXT + size for pid, size in enumerate(more, 1)}


def test_what_is_nobodys_does_not_hide_behind_many_small_processes() -> None:
    held = dict.fromkeys(range(300), 2 << 20)
    before = MemorySample("x", 16 * GIB, OWN["x"] + sum(held.values()) + 4 * GIB, held)
    assert find_ownerless([before], {}, OWN) == {"x": 4 * GIB - 300 * (2 << 20) // 16}


def test_little_that_the_driver_takes_for_each_process_is_not_missing_from_what_many_have() -> None:
    """The last of ten would be left without 160 MiB."""
    number, size = 10, 245 << 20
    nobodys = number * size - number * UNCOUNTED
    before = sample(nobodys, dict.fromkeys(range(number), CONTEXT))
    [found] = complete([before], mapped(dict.fromkeys(range(number), size)), {}, OWN, lambda _pid: "a")
    assert sum((found.held or {}).values()) == number * (CONTEXT + size) - UNCOUNTED


def test_it_is_tolerated_together_with_what_is_listed() -> None:
    """A program that has 245 MiB of each past the hook has 490 MiB past the hook."""
    more, used = 245 << 20, {1: {"x": CONTEXT}, 2: {"x": CONTEXT}}
    before = sample(more, {1: CONTEXT + more, 2: CONTEXT})
    [found] = complete([before], mapped({1: more, 2: 2 << 20}), used, OWN, str)
    charged = attribute(found.used, found.held or {}, {1: CONTEXT, 2: CONTEXT}, lambda _pid: "a")
    assert (charged.seen, charged.unleased) == ({"a": 2 * CONTEXT + 2 * more}, {"a": 2 * more})


def test_it_lies_where_the_process_is_listed() -> None:
    """Who has managed memory by the hook on one device has none on another, though that lacks as much."""
    samples = [sample(3 * GIB, {1: CONTEXT}), sample(4 * GIB, {2: CONTEXT}, "y")]
    sizes = {**mapped({1: 3 * GIB}), **mapped({2: 4 * GIB}, frozenset({"y"}))}
    used = {1: {"x": CONTEXT + 3 * GIB, "y": 0}}
    assert [one.held for one in complete(samples, sizes, used, OWN, str)] == [{1: CONTEXT}, {2: CONTEXT + 4 * GIB}]


@pytest.mark.parametrize("listed", [{1: CONTEXT}, {}])
def test_what_lies_on_devices_that_were_not_sampled_is_accounted_for(listed: Mapping[int, int]) -> None:
    used = {1: {"x": CONTEXT, "y": CONTEXT + 3 * GIB}}
    [found] = complete([sample(3 * GIB, listed)], mapped({1: 3 * GIB}), used, OWN, str)
    assert found.held == listed


@pytest.mark.parametrize(("at", "more"), [(4.9, 0), (5.0, 3 * GIB)])
def test_what_was_read_before_is_not_held_against_what_is_used_now(at: float, more: int) -> None:
    """Since then it may have freed managed memory, and have memory of the card in its place."""
    held = {1: CONTEXT + 3 * GIB}
    mapped = {1: Mapped(3 * GIB, 7, {"x"}, CONTEXT + 3 * GIB, at)}
    [found] = complete([sample(3 * GIB, held)], mapped, {1: {"x": CONTEXT + 3 * GIB}}, OWN, str, begun=5.0)
    assert found.held == {1: CONTEXT + 3 * GIB + more}


def test_a_process_that_is_listed_nowhere_has_it_where_its_container_has_a_limit() -> None:
    samples = [sample(3 * GIB, {}), sample(4 * GIB, {}, "y")]
    found = complete(samples, mapped({5: 9 * GIB}, frozenset({"y"})), {}, OWN, str)
    assert [(one.held, one.starts) for one in found] == [({}, {}), ({5: 4 * GIB}, {5: 7})]


def test_a_device_that_does_not_answer_is_left_as_it_is() -> None:
    lost = MemorySample("x", error="GPU is lost")
    assert complete([lost, sample(GIB, {1: CONTEXT}, "y")], mapped({1: GIB}), {}, OWN, str)[0] == lost


@pytest.mark.parametrize(
    ("ownerless", "imported", "more"),
    [
        (3 * GIB, {3: 3 * GIB}, {3: 3 * GIB}),
        (2 * GIB, {3: 3 * GIB}, {3: 2 * GIB}),
        (0, {3: 3 * GIB}, {}),  # its owner lives, and is listed with it
        (3 * GIB, {3: NOISE}, {}),
        (3 * GIB, {4: 3 * GIB}, {}),  # it is not listed
        # What another of its container is listed with, may be what it imported: that is nobody's twice.
        (3 * GIB, {1: GIB}, {}),
        (3 * GIB, {1: 4 * GIB}, {1: 2 * GIB}),
        (3 * GIB, {2: 3 * GIB}, {2: 3 * GIB - CONTEXT}),
        (5 * GIB, {1: 5 * GIB, 2: 4 * GIB}, {1: 3 * GIB, 2: 2 * GIB}),  # two of one container share it
        (3 * GIB, {1: 5 * GIB, 3: 3 * GIB}, {1: 3 * GIB, 3: 3 * GIB}),  # two containers: both use it
    ],
)
def test_who_imported_what_has_no_owner_has_it(
    ownerless: int, imported: Mapping[int, int], more: Mapping[int, int]
) -> None:
    held = {1: CONTEXT, 2: 2 * GIB, 3: CONTEXT}
    before = sample(ownerless, held)
    [after] = add_imported([before], {"x": imported}, {}, OWN, {1: "a", 2: "a", 3: "b"}.get)
    assert after.held == {pid: held[pid] + more.get(pid, 0) for pid in held}
    assert after.imported == more
    unnamed = MemorySample("x", used=9 * GIB)
    assert add_imported([unnamed], {"x": imported}, {}, OWN, {}.get) == [unnamed]
