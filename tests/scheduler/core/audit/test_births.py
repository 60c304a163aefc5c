"""Where a process ran that nobody saw alive, by its relatives: tables of the pure part."""

from collections.abc import Iterator, Mapping

import pytest

from convgpu.core.audit.births import Births, Place

A, B, HOST = ("id-a",), ("id-b",), ()
NOW = 9.0

# Births: pid, its parent's pid, when; then who was seen where.
Births_ = list[tuple[int, int, float]]
SHIM = [(10, 1, 0.0), (11, 10, 0.1), (20, 10, 5.0), (21, 20, 5.1)]  # a shim, its container's first program, a runtime


@pytest.mark.parametrize(
    ("births", "seen", "children", "place"),
    [
        ([], {}, {}, HOST),
        ([(21, 20, 5.1)], {}, {}, HOST),
        # Its parent is in a container, or that one's.
        ([(10, 1, 0.0), (20, 10, 5.0), (21, 20, 5.1)], {10: A}, {}, A),
        ([(10, 1, 0.0), (20, 10, 5.0), (21, 20, 5.1)], {10: HOST, 20: A}, {}, A),
        # Its child is.
        ([(21, 20, 5.1), (22, 21, 5.2)], {22: A}, {}, A),
        ([(21, 20, 5.1), (22, 21, 5.2), (23, 21, 5.3)], {22: A, 23: B}, {}, HOST),
        # It was seen on the host, where runtimes make programs that they put into a container.
        ([(21, 20, 5.1), (22, 21, 5.2)], {21: HOST, 22: A}, {}, A),
        (SHIM, {10: HOST, 11: A, 21: HOST}, {10: [A]}, A),
        # A runtime put it into the container whose shim started that.
        (SHIM, {10: HOST, 11: A}, {10: [A]}, A),
        (SHIM, {10: HOST, 11: A}, {10: [A, B]}, HOST),
        (SHIM, {10: HOST}, {}, HOST),
        # Orphans come to the first process from any container.
        ([(1, 0, 0.0), (21, 1, 5.1)], {1: HOST}, {1: [A]}, HOST),
        # Its parent's pid is somebody else's now.
        ([(20, 1, 5.0), (21, 20, 5.1), (20, 2, 5.2)], {20: B}, {}, HOST),
    ],
)
def test_a_process_ran_where_its_relatives_do(
    births: Births_, seen: Mapping[int, Place], children: Mapping[int, list[Place]], place: Place
) -> None:
    def living_children(pid: int) -> Iterator[Place]:
        yield from children.get(pid, [])

    known = Births()
    for pid, where in seen.items():
        known.place(pid, where)  # of whom no birth is known
    pending = dict(seen)
    for pid, parent, at in births:
        known.add(pid, parent, at)
        if pid in pending and sum(row[0] == pid for row in births) == 1:
            known.place(pid, pending.pop(pid))
    for pid, where in pending.items():
        known.place(pid, where)
    known.end({row[0] for row in births}, 8.0, NOW)
    assert known.place_of(21, 1.0, NOW, living_children) == place


def test_of_two_that_had_a_pid_it_is_the_later_one_if_the_memory_came_after_that() -> None:
    births = Births()
    for pid, parent, at, place in [(10, 1, 0.0, A), (11, 1, 0.0, B), (21, 10, 2.0, None), (21, 11, 5.0, None)]:
        births.add(pid, parent, at)
        if place:
            births.place(pid, place)
    births.end({10, 11, 21}, 8.0, NOW)
    assert [births.place_of(21, since, NOW, lambda _: []) for since in (5.5, 5.0, 4.9)] == [B, B, HOST]
    births.add(21, 11, 6.0)
    assert births.place_of(21, 5.0, NOW, lambda _: []) == B  # both were there
    assert births.place_of(21, 4.0, NOW, lambda _: []) == HOST  # and somebody else who is forgotten
    assert births.place_of(21, 5.0, 5.9, lambda _: []) == B  # the later one came afterwards


def test_who_had_a_pid_and_ended_before_the_memory_came_is_not_meant() -> None:
    """Where process IDs are given again within a second, each had one before."""
    births = Births()
    for pid, parent, at, place in [(10, 1, 0.0, A), (11, 1, 0.0, B), (21, 10, 2.0, None)]:
        births.add(pid, parent, at)
        if place:
            births.place(pid, place)
    births.end({10, 11}, 2.9, 3.0)
    assert [births.place_of(21, since, 3.0, lambda _: []) for since in (3.0, 2.9)] == [HOST, A]
    births.add(21, 11, 5.0)
    births.end({10, 11, 21}, 5.5, NOW)
    assert [births.place_of(21, since, NOW, lambda _: []) for since in (4.9, 3.0, 2.9)] == [B, B, HOST]
    births.add(21, 10, 6.0)  # nobody saw that the one before had ended: by now it has
    assert [births.place_of(21, since, NOW, lambda _: []) for since in (6.0, 5.9)] == [A, HOST]


def test_nobody_is_meant_before_births_are_told() -> None:
    """The pid's holder may be one whose birth is on its way; so a container was charged with another's memory."""
    births = Births()
    births.add(21, 1, 2.0)
    births.place(21, A)
    births.end({21}, 2.9, 3.0)
    assert [births.place_of(21, 2.5, until, lambda _: []) for until in (3.0, 3.1)] == [A, HOST]
    births.lose()
    births.end({21}, 4.9, 5.0)
    assert births.place_of(21, 2.5, 3.0, lambda _: []) == HOST


def test_nobody_is_meant_who_may_have_had_the_pid_after_one_that_is_not_known() -> None:
    births = Births()
    births.clear(4.0)
    births.add(21, 1, 0.0)
    births.place(21, A)
    births.end({21}, 4.9, 5.0)
    assert [births.place_of(21, since, 5.0, lambda _: []) for since in (4.0, 3.9)] == [A, HOST]


def test_who_began_while_it_was_seen_who_lives_may_live() -> None:
    births = Births()
    births.add(21, 1, 2.0)
    births.place(21, A)
    births.end(set(), 1.9, 2.1)
    births.add(21, 1, 5.0)
    births.end({21}, 8.0, NOW)
    assert births.place_of(21, 4.0, NOW, lambda _: []) == HOST


def test_who_ended_first_is_forgotten_when_they_are_too_many() -> None:
    births, everybody = Births(most=2), {10, 11, 12, 13, 14}
    for pid in sorted(everybody):
        births.add(pid, 1, 0.0)
        births.place(pid, A)
    births.end(everybody - {13}, 1.0, 1.0)
    births.end(everybody - {13, 11}, 2.0, 2.0)
    births.end(everybody - {13, 11, 12}, 3.0, 3.0)
    assert [births.place_of(pid, 0.5, 3.0, lambda _: []) for pid in sorted(everybody)] == [A, A, A, HOST, A]
    births.add(13, 10, 4.0)
    births.end(everybody, 5.0, 5.0)
    assert [births.place_of(13, since, 5.0, lambda _: []) for since in (1.0, 0.9)] == [A, HOST]


def test_births_are_forgotten_when_some_were_lost() -> None:
    births = Births()
    births.add(12, 1, 0.0)
    births.place(12, A)
    births.clear(0.5)
    births.end(set(), 1.0, 1.0)
    assert births.place_of(12, 1.0, 1.0, lambda _: []) == HOST
