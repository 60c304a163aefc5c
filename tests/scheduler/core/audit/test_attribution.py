"""What follows from what NVML counts: tables of the pure part."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from convgpu.core.audit.attribution import (
    ALL,
    NOISE,
    TOLERATED,
    UNCOUNTED,
    Kept,
    Owner,
    attribute,
    beyond,
    claim,
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
    uncounted = sum(min(size // 16, UNCOUNTED) for size in held.values())
    assert found.unattributed == 10 * GIB - sum(held.values()) - uncounted


A = Owner("a", "id-a", has_session=True)
B = Owner("b", "id-b")
KEPT = Kept(1, 30, A, is_left=False)
LEFT = Kept(1, 30, A, is_left=True)


def test_memory_of_the_dead_is_their_containers_until_that_has_ended_too() -> None:
    kept = [Kept(1, GIB, A, is_left=False), Kept(2, GIB, B, is_left=False), Kept(3, 4 * GIB, B, is_left=True)]
    kept += [replace(KEPT, pid=4, is_ending=True), replace(LEFT, pid=5, is_ending=True)]
    found = attribute(8 * GIB, {4: GIB}, {4: GIB}, {4: "a"}.get, kept=kept)
    assert (found.seen, found.unleased) == ({"a": 2 * GIB + 30, "b": GIB}, {"a": GIB + 30, "b": GIB})
    assert (found.tolerated, found.external) == ({"a": (2 * GIB + 30) // 8}, 4 * GIB)
    assert (found.unheld, found.unattributed) == (GIB - 30, GIB - 30 - 4 * UNCOUNTED - 1)
    assert found.without_process == 7 * GIB - UNCOUNTED


def test_what_is_imported_is_not_a_process_s_own() -> None:
    """Who lets go of it leaves it to whoever has the descriptor: it is no sign that nothing is left."""
    found = attribute(3 * GIB, {4: 3 * GIB}, {4: GIB}, {4: "a"}.get, imported={4: 2 * GIB})
    assert (found.seen, found.unattributed) == ({"a": 3 * GIB}, 0)
    assert (found.without_process, found.imported) == (2 * GIB - UNCOUNTED, {"a": 2 * GIB})


def test_many_small_processes_do_not_hide_what_no_process_has() -> None:
    """A stranger had 850 with 2 MiB each: exports of 13 GiB, which somebody had, were forgotten beside them.

    Beside 300, what a dead program of the same container had left to a child was nobody's.
    """
    held = dict.fromkeys(range(850), 2 * MIB)
    found = attribute(850 * 2 * MIB + 3 * GIB, held, held, lambda _pid: "a")
    assert found.without_process == 3 * GIB - 4 * UNCOUNTED
    assert found.unattributed == 3 * GIB - 850 * 2 * MIB // 16
    assert attribute(4 * MIB, {1: 2 * MIB}, {}, {}.get).without_process == 2 * MIB - 2 * MIB // 16


def test_a_container_is_not_charged_for_who_exits_and_is_seen_with_it() -> None:
    """It was charged with 2.9 GiB of a program of its that exited, and the next one was refused for want of them."""
    exiting = Kept(2, GIB, A, is_left=False, is_ending=True, is_exiting=True)
    found = attribute(GIB, {}, {}, {}.get, kept=[exiting])
    assert (found.seen, found.unleased, found.unheld) == ({"a": GIB}, {}, 0)


@pytest.mark.parametrize(
    ("size", "charged"),
    [(3 * GIB, {}), (3 * GIB + TOLERATED, {}), (4 * GIB, {"a": GIB}), (3 * GIB + TOLERATED + 1, {"a": TOLERATED + 1})],
)
def test_what_the_limit_counts_of_a_dead_one_is_not_charged_as_well(size: int, charged: Mapping[str, int]) -> None:
    """Its connection is open still, or it takes long to end: its container was ended for what it did not have."""
    kept = Kept(2, size, A, is_left=False, counted=3 * GIB)
    found = attribute(size, {}, {}, {}.get, kept=[kept])
    assert (found.seen, found.unleased) == ({"a": size}, charged)


UNKNOWN = Kept(7, 3 * GIB, Owner(is_known=False), is_left=True)


@pytest.mark.parametrize(
    ("unlisted", "found", "claims", "rest"),
    [
        (0, {B: GIB}, {B: GIB}, 2 * GIB),  # of what is listed for unknown ones
        (0, {B: 3 * GIB}, {B: 3 * GIB}, 0),
        (2 * GIB, {A: 4 * GIB, B: 4 * GIB}, {A: 4 * GIB, B: GIB}, 0),  # and of what nobody is listed with
        (2 * GIB, {A: ALL, B: 4 * GIB}, {B: 4 * GIB, A: GIB}, 0),  # who disturbs has what is left
        (0, {}, {}, 3 * GIB),
    ],
)
def test_what_is_found_of_unseen_dead_ones_is_of_what_is_nobodys(
    unlisted: int, found: Mapping[Owner, int], claims: Mapping[Owner, int], rest: int
) -> None:
    left = [replace(UNKNOWN, size=rest)] if rest else []
    rows = [Kept(0, size, owner, is_left=False) for owner, size in claims.items()]
    assert claim([KEPT, UNKNOWN], found, unlisted) == [KEPT, *left, *rows]


def test_what_was_listed_a_moment_ago_is_not_found_beyond_what_is_listed() -> None:
    kept = [Kept(1, GIB, A, is_left=False), Kept(2, GIB, B, is_left=False)]
    assert beyond(kept, {A: 3 * GIB, B: 3 * GIB}, {"a": 2 * GIB}) == {A: GIB, B: 2 * GIB}
    assert beyond(kept, {A: 3 * GIB}, {"a": 0}) == {A: 2 * GIB}


@pytest.mark.parametrize(
    ("kept", "found", "rest"),
    [
        # A dead one that is charged is found, too: by another pid, and births may have told whose it was.
        ([Kept(1, 3 * GIB, A, is_left=False), UNKNOWN], {replace(A, has_session=False): 3 * GIB}, 0),
        ([Kept(1, 3 * GIB, A, is_left=False), UNKNOWN], {A: 5 * GIB}, 2 * GIB),
        ([Kept(1, 2 * GIB, A, is_left=False), Kept(2, 2 * GIB, A, is_left=False), UNKNOWN], {A: 5 * GIB}, GIB),
        ([Kept(1, 3 * GIB, A, is_left=False), UNKNOWN], {A: 2 * GIB}, 0),
        ([Kept(1, 3 * GIB, B, is_left=False), UNKNOWN], {A: 2 * GIB}, 2 * GIB),
        # Before it was started again it had another namespace.
        ([Kept(1, 3 * GIB, A, is_left=True), UNKNOWN], {A: 2 * GIB}, 2 * GIB),
    ],
)
def test_nobody_is_charged_twice_with_a_dead_one(kept: list[Kept], found: Mapping[Owner, int], rest: int) -> None:
    left = beyond(kept, found)
    assert left == dict.fromkeys(found, rest) if rest else left == {}
    seen = attribute(9 * GIB, {}, {}, {}.get, 0, claim(kept, left, 0)).seen
    charged = sum(one.size for one in kept if one.owner.volume == "a" and not one.is_left)
    assert seen.get("a", 0) == charged + rest


@pytest.mark.parametrize(
    ("count", "lease", "excess", "tolerated", "unleased"),
    [
        (1, 526 * MIB, 256 * MIB, 256 * MIB, 0),
        (1, 8 * GIB, 256 * MIB, 256 * MIB, 0),
        # What another took, in 66 containers with next to no limit.
        (1, 1024, 250 * MIB, 512, 250 * MIB - 512),
        (4, 2 * MIB, 250 * MIB, 4 * MIB, 996 * MIB),
        # What the stranger took: ten with a context and a little more, seven likewise.
        (10, 640 * MIB, 240 * MIB, 800 * MIB, 1600 * MIB),
        (7, 600 * MIB, 245 * MIB, 525 * MIB, 1190 * MIB),
        (100, 526 * MIB, 250 * MIB, 6575 * MIB, 18425 * MIB),
        # PyTorch, before the hook has charged what its first launches took.
        (2, 540 * MIB, 92 * MIB, 256 * MIB, 0),
        (3, 684 * MIB, 92 * MIB, 513 * MIB // 2, 39 * MIB // 2),
        (8, 736 * MIB, 92 * MIB, 736 * MIB, 0),
        (8, 1296 * MIB, 162 * MIB, 1296 * MIB, 0),
        (3, 2 * GIB, 200 * MIB, 3 * 256 * MIB, 0),
        # Each alone is charged in full.
        (3, 2 * GIB, 257 * MIB, 3 * 256 * MIB, 3 * 257 * MIB),
    ],
)
def test_what_many_processes_have_past_the_hook_is_tolerated_together(
    count: int, lease: int, excess: int, tolerated: int, unleased: int
) -> None:
    leases = dict.fromkeys(range(count), lease)
    found = attribute(100 * GIB, dict.fromkeys(leases, lease + excess), leases, lambda _pid: "a")
    assert found.seen == {"a": count * (lease + excess)}
    assert found.tolerated == {"a": tolerated}
    assert found.unleased == ({"a": unleased} if unleased else {})


def test_the_dead_add_no_tolerance_without_end() -> None:
    kept = [replace(KEPT, pid=pid, size=640 * MIB) for pid in range(10, 15)]
    found = attribute(100 * GIB, {1: GIB}, {1: GIB}, lambda _pid: "a", kept=kept)
    assert (found.tolerated, found.unleased) == ({"a": (GIB + 5 * 640 * MIB) // 8}, {"a": 5 * 640 * MIB})
    kept = [replace(KEPT, size=100 * MIB)] * 9
    assert attribute(100 * GIB, {}, {}, WHOSE.get, kept=kept).tolerated == {"a": TOLERATED}


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
