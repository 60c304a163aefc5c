"""What follows from what NVML counts: tables of the pure part."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from convgpu.core.attribution import (
    NOISE,
    TOLERATED,
    UNCOUNTED,
    OveruseTimer,
    TakenReserves,
    attribute,
    is_significant,
    lasting,
)
from convgpu.daemon.system import procfs as host

GIB = 1 << 30
MIB = 1 << 20
WHOSE = {1: "a", 2: "a", 3: "b"}  # 9 is external


@pytest.mark.parametrize(
    ("held", "lease", "seen", "unleased", "external"),
    [
        ({}, {}, {}, {}, 0),
        ({1: GIB}, {1: GIB}, {"a": GIB}, {}, 0),
        ({1: GIB}, {1: 2 * GIB}, {"a": GIB}, {}, 0),
        ({1: GIB + 92 * MIB}, {1: GIB}, {"a": GIB + 92 * MIB}, {}, 0),
        ({1: GIB + TOLERATED}, {1: GIB}, {"a": GIB + TOLERATED}, {}, 0),
        ({1: GIB + TOLERATED + 1}, {1: GIB}, {"a": GIB + TOLERATED + 1}, {"a": TOLERATED + 1}, 0),
        # Without a session nothing is tolerated, and what another process leases does not cover it.
        ({1: GIB, 2: 2 * GIB}, {1: 5 * GIB}, {"a": 3 * GIB}, {"a": 2 * GIB}, 0),
        ({1: GIB, 2: 2 * GIB, 3: 7}, {}, {"a": 3 * GIB, "b": 7}, {"a": 3 * GIB, "b": 7}, 0),
        ({9: GIB, 3: MIB}, {3: MIB}, {"b": MIB}, {}, GIB),
    ],
)
def test_who_holds_what(
    held: Mapping[int, int],
    lease: Mapping[int, int],
    seen: Mapping[str, int],
    unleased: Mapping[str, int],
    external: int,
) -> None:
    found = attribute(10 * GIB, held, lease, WHOSE.get)
    assert (found.seen, found.unleased, found.external) == (seen, unleased, external)
    assert found.unattributed == 10 * GIB - sum(held.values()) - UNCOUNTED * len(held)


def test_only_what_two_looks_find_counts_and_the_smaller_of_both() -> None:
    assert lasting({"a": 5, "b": 7, "c": 1}, {"a": 9, "b": 3, "d": 4}) == {"a": 5, "b": 3}


@pytest.mark.parametrize(
    ("old", "new", "news"),
    [
        (0, 0, False),
        (0, NOISE - 1, False),
        (0, NOISE, True),
        (5, 0, True),
        (GIB, GIB + 1, False),
        (GIB, GIB - NOISE, True),
    ],
)
def test_small_changes_are_no_news_but_ends_are(old: int, new: int, news: bool) -> None:
    assert is_significant(old, new) == news


def test_who_stays_above_the_limit_is_named_once_and_expires() -> None:
    overuse = OveruseTimer(10.0)
    one, two = ("a", "gpu"), ("b", "gpu")
    assert overuse.update({one}, 0.0) == ({one}, set())
    assert overuse.update({one, two}, 9.9) == ({two}, set())
    assert overuse.update({one}, 10.0) == (set(), {"a"})
    assert overuse.update(set(), 12.0) == (set(), set())
    assert overuse.update({two}, 13.0) == ({two}, set())
    assert overuse.update(set(), 14.0) == (set(), set())


def test_who_took_what_others_lack_is_found_and_nobody_whose_memory_was_there_before() -> None:
    taken = TakenReserves()
    assert taken.find("gpu", {"late": 9 * GIB}, lacks=True) == set()  # a new scheduler knows of nobody
    assert taken.find("gpu", {"late": 9 * GIB, "a": 9 * GIB}, lacks=True) == {"a"}
    assert taken.find("gpu", {"late": 9 * GIB, "a": 9 * GIB}, lacks=False) == set()
    assert taken.find("gpu", {"late": 9 * GIB, "a": 9 * GIB}, lacks=True) == set()  # external memory came
    assert taken.find("gpu", {"a": 9 * GIB + TOLERATED}, lacks=True) == set()
    assert taken.find("gpu", {"a": 9 * GIB + TOLERATED + 1}, lacks=True) == {"a"}
    assert taken.find("gpu", {}, lacks=True) == set()
    assert taken.find("gpu", {"a": 9 * GIB}, lacks=True) == {"a"}  # it gave it back, and took it again
    assert taken.find("other", {"a": 9 * GIB}, lacks=True) == set()


def looks(over: Callable[[float], bool], seconds: int, every: float = 2.0) -> float | None:
    """Return when a container that is above its limit at such times has been there for too long; None: never."""
    overuse, one = OveruseTimer(10.0), ("a", "gpu")
    for number in range(int(seconds / every)):
        _, due = overuse.update({one} if over(number * every) else set(), number * every)
        if due:
            return number * every
    return None


@pytest.mark.parametrize(
    ("burst", "pause", "every", "due"),
    [
        (99.0, 0.0, 2.0, 10.0),
        (8.0, 2.5, 2.0, 16.0),  # by which a stranger held six times its limit for most of the time
        (2.0, 2.0, 2.0, 28.0),
        (9.9, 9.9, 2.0, 22.0),
        (8.0, 30.0, 2.0, 82.0),
        (9.9, 60.0, 2.0, None),
        (2.0, 12.0, 2.0, None),
        (0.062, 0.938, 2.3, None),  # a moment each second, as the longest that was measured
        (0.062, 20.0, 10.0, None),
        (99.0, 0.0, 10.0, 10.0),
        (99.0, 0.0, 30.0, 30.0),
    ],
)
def test_pauses_do_not_undo_what_was_counted_but_moments_are_forgotten(
    burst: float, pause: float, every: float, due: float | None
) -> None:
    assert looks(lambda now: now % (burst + pause) < burst, 100_000, every) == due


def test_no_more_is_remembered_than_what_was_above_its_limit_lately() -> None:
    overuse = OveruseTimer(10.0)
    for number in range(1000):
        overuse.update({(f"c{number}", "gpu")}, number * 2.0)
    assert len(overuse._counted) == 6


ID, OTHER = "0123456789abcdef" * 4, "f" * 64


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", [ID]),
        (f"0::/../../docker-{ID}.scope\n", [ID]),
        (f"12:memory:/docker/{ID}\n11:cpu:/docker/{ID}\n0::/\n", [ID]),
        (f"0::/docker/{ID}/{OTHER}/x\n", [ID, OTHER]),
        (f"0::/docker/{ID}/docker/{OTHER}\n", [ID, OTHER]),
        ("0::/user.slice/user-0.slice/session-1.scope\n", []),
        (f"0::/docker/{ID[:-1]}\n0::/docker/{ID}0\n", []),
    ],
)
def test_containers_are_told_by_cgroup(monkeypatch: pytest.MonkeyPatch, text: str, ids: list[str]) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda _: text.encode())
    assert host.containers_of(1) == ids
