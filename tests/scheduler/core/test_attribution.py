"""What follows from what NVML counts: tables of the pure part."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from convgpu.core.audit.attribution import (
    NOISE,
    TOLERATED,
    UNCOUNTED,
    Kept,
    ListedProcesses,
    Listing,
    MemorySample,
    Owner,
    ProcessFacts,
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


A = Owner("a", "id-a", has_session=True)
B = Owner("b", "id-b")
HOST = Owner()
UNKNOWN = Owner(is_known=False)
KEPT = Kept(1, 30, A, is_left=False)
LEFT = Kept(1, 30, A, is_left=True)


def test_memory_of_the_dead_is_their_containers_until_that_has_ended_too() -> None:
    kept = [Kept(1, GIB, A, is_left=False), Kept(2, GIB, B, is_left=False), Kept(3, 4 * GIB, B, is_left=True)]
    kept += [replace(KEPT, pid=4, is_ending=True), replace(LEFT, pid=5, is_ending=True)]
    found = attribute(8 * GIB, {4: GIB}, {4: GIB}, {4: "a"}.get, kept=kept)
    assert (found.seen, found.unleased) == ({"a": 2 * GIB + 30, "b": GIB}, {"a": GIB + 30, "b": GIB})
    assert (found.tolerated, found.external) == ({"a": (2 * GIB + 30) // 8}, 4 * GIB)
    assert (found.unheld, found.unattributed) == (GIB - 30, GIB - 30 - 5 * UNCOUNTED)


@pytest.mark.parametrize(
    ("count", "lease", "excess", "tolerated", "unleased"),
    [
        (1, 526 * MIB, 256 * MIB, 256 * MIB, 0),
        (1, 8 * GIB, 256 * MIB, 256 * MIB, 0),
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
    assert attribute(100 * GIB, {}, {}, WHOSE.get, kept=[KEPT] * 9).tolerated == {"a": TOLERATED}


def play(
    *samples: tuple[float, Mapping[int, tuple[int, int]], Mapping[int, Owner], set[str]],
    uses: bool = True,
    lease: int | None = None,
    keeps: bool = True,
    origin_of: Callable[[int, float, float], Owner] = lambda _pid, _since, _until: UNKNOWN,
) -> list[Listing]:
    """Return what follows from samples: time, (start, size) by pid with start 0 for the dead, owners, who runs.

    `uses`: whoever gets a dead process's pid has the driver open. `lease`: of those, None without a session.
    `keeps`: others of a dead one's container have it open. `origin_of`: whose a process was that nobody saw alive.
    """
    processes = ListedProcesses()
    found = []
    for now, rows, owners, running in samples:
        held = {pid: size for pid, (start, size) in rows.items() if start}
        ended = {pid: size for pid, (start, size) in rows.items() if not start}
        starts = {pid: start for pid, (start, _) in rows.items() if start}
        sample = MemorySample("gpu", 100, 50, held, ended=ended, starts=starts, answered=now - 0.5)
        asked = running.__contains__, lambda _: uses, lambda _: keeps
        facts = ProcessFacts(owners.__getitem__, origin_of, lambda _: lease, *asked)
        found.append(processes.update(sample, facts, now))
    return found


ALIVE = (0.0, {1: (7, 30)}, {1: A}, {"a"})
ENDING = replace(KEPT, is_ending=True)


def test_whose_a_dead_process_was_is_known_as_long_as_it_is_listed() -> None:
    dead, back = {1: (0, 30)}, {1: (9, 5)}
    assert play(
        ALIVE,
        (2.0, dead, {}, {"a"}),  # the driver may be about to free it
        (4.0, dead, {}, {"a"}),
        (6.0, dead, {}, set()),
        (8.0, dead, {}, {"a"}),  # it started again, without that memory
        (10.0, {}, {}, {"a"}),
        (12.0, back, {1: B}, {"a", "b"}),
    ) == [
        Listing({1: 30}, {1: A}, []),
        Listing({}, {}, [ENDING]),
        Listing({}, {}, [KEPT]),
        Listing({}, {}, [LEFT]),
        Listing({}, {}, [LEFT]),
        Listing({}, {}, []),
        Listing({1: 5}, {1: B}, []),
    ]


def test_who_gets_the_pid_of_a_dead_process_did_not_hold_its_memory() -> None:
    """It may use the device itself: then it holds what is listed beyond that."""
    assert play(
        ALIVE,
        (2.0, {1: (9, 30)}, {1: B}, {"a", "b"}),
        (4.0, {1: (9, 30)}, {1: B}, {"a", "b"}),
        (6.0, {1: (9, 42)}, {1: B}, {"a", "b"}),
        (8.0, {1: (0, 30)}, {}, {"a", "b"}),
    ) == [
        Listing({1: 30}, {1: A}, []),
        Listing({}, {}, [ENDING]),
        Listing({}, {}, [KEPT]),
        Listing({1: 12}, {1: B}, [KEPT]),
        Listing({}, {}, [KEPT]),
    ]


def test_memory_of_a_dead_process_that_grows_is_nobodys_who_has_not_the_driver_open() -> None:
    """It was taken since the last sample, or by who keeps it; with its pid no other process is blamed for that."""
    more = replace(KEPT, size=42)
    assert play(ALIVE, (4.0, {1: (0, 42)}, {}, {"a"}), (6.0, {1: (0, 42)}, {}, {"a"}))[2] == Listing({}, {}, [more])
    innocent = (6.0, {1: (9, 42)}, {1: B}, {"a", "b"})
    assert play(ALIVE, (4.0, {1: (9, 30)}, {1: B}, {"a", "b"}), innocent, uses=False)[2] == Listing({}, {}, [more])


def test_of_who_was_never_seen_alive_nobody_knows_whose_it_was() -> None:
    """A new scheduler takes what it finds as there for long; later it may be about to be freed."""
    unknown = [Kept(pid, 30, UNKNOWN, is_left=True) for pid in (1, 2)]
    first, both = {1: (0, 30)}, {1: (0, 30), 2: (0, 30)}
    assert play((0.0, first, {}, set()), (2.0, both, {}, set()), (4.0, both, {}, set())) == [
        Listing({}, {}, unknown[:1]),
        Listing({}, {}, [unknown[0], replace(unknown[1], is_ending=True)]),
        Listing({}, {}, unknown),
    ]


def test_whose_a_process_was_that_nobody_saw_alive_is_asked_for_five_seconds() -> None:
    """Births are told later than samples; the memory was not there in the sample before."""
    asked: list[tuple[int, float, float]] = []

    def origin_of(pid: int, since: float, until: float) -> Owner:
        asked.append((pid, since, until))
        return UNKNOWN if len(asked) < 3 else A

    dead = {1: (0, 30)}
    samples = [(now, dead, {}, {"a"}) for now in (4.0, 6.0, 8.0, 10.0)]
    first: tuple[float, dict[int, tuple[int, int]], dict[int, Owner], set[str]] = (2.0, {}, {}, {"a"})
    found = play(first, *samples, origin_of=origin_of)
    unknown = Kept(1, 30, UNKNOWN, is_left=True)
    kept = [replace(unknown, is_ending=True), unknown, KEPT, KEPT]
    assert found == [Listing({}, {}, []), *(Listing({}, {}, [one]) for one in kept)]
    assert asked == [(1, 2.0, 3.5)] * 3
    asked.clear()
    late = [(now, dead, {}, {"a"}) for now in (4.0, 9.0, 9.1)]
    assert [listing.kept[0].owner for listing in play(first, *late, origin_of=origin_of)[1:]] == [UNKNOWN] * 3
    assert asked == [(1, 2.0, 3.5)] * 2


@pytest.mark.parametrize("owner", [A, B])
def test_what_is_listed_with_a_hooked_programs_pid_is_not_all_its_own(owner: Owner) -> None:
    """Who keeps the memory of the dead one that had its pid makes more of it; or the program takes it past the hook.

    Nobody can tell; the container of both is certain.
    """
    lease, names = 20, {"a", "b"}
    more = 30 + lease + TOLERATED + 7
    rows = [(4.0, {1: (9, 30 + 12)}, {1: owner}, names), (6.0, {1: (9, more)}, {1: owner}, names)]
    share, rest = {1: lease + TOLERATED}, Kept(1, 7, UNKNOWN, is_left=True)
    kept = [replace(KEPT, size=37)] if owner == A else [KEPT, rest]
    assert play(ALIVE, *rows, lease=lease)[1:] == [
        Listing({1: 12}, {1: owner}, [ENDING]),
        Listing(share, {1: owner}, kept),
    ]


def test_what_came_with_another_that_had_the_pid_is_never_the_dead_ones() -> None:
    """Also when that one has ended, and what it has is kept; what comes with nobody there is the first one's."""
    names = {"a", "b", "c"}
    other = Owner("c", "id-c", has_session=True)

    def rest(size: int) -> Kept:
        return Kept(1, size, UNKNOWN, is_left=True)

    assert play(
        ALIVE,
        (2.0, {1: (9, 80)}, {1: B}, names),
        (4.0, {1: (0, 80)}, {}, names),
        (6.0, {1: (0, 85)}, {}, names),
        (8.0, {1: (11, 95)}, {1: other}, names),
        (10.0, {1: (0, 45)}, {}, names),
        (12.0, {1: (0, 20)}, {}, names),
    )[1:] == [
        Listing({1: 50}, {1: B}, [ENDING]),
        Listing({}, {}, [KEPT, rest(50)]),
        Listing({}, {}, [replace(KEPT, size=35), rest(50)]),
        Listing({1: 10}, {1: other}, [replace(KEPT, size=35), rest(50)]),
        Listing({}, {}, [replace(KEPT, size=35), rest(10)]),
        Listing({}, {}, [replace(KEPT, size=20)]),
    ]


def test_memory_of_a_dead_process_is_nobodys_if_its_pid_came_again_before_a_look_and_nobody_can_keep_it() -> None:
    """A stranger took the pid of an innocent's program at its end, and its container was ended for what he took."""
    rows = [(2.0, {1: (9, 30)}, {1: B}, {"a", "b"}), (4.0, {1: (9, 70)}, {1: B}, {"a", "b"})]
    nobodys = Kept(1, 30, UNKNOWN, is_left=True)
    assert play(ALIVE, *rows, keeps=False)[1:] == [
        Listing({}, {}, [replace(nobodys, is_ending=True)]),
        Listing({1: 40}, {1: B}, [nobodys]),
    ]
    seen = [(2.0, {1: (0, 30)}, {}, {"a", "b"}), *((now + 2, *row) for now, *row in rows)]
    assert play(ALIVE, *seen, keeps=False)[2:] == [Listing({}, {}, [KEPT]), Listing({1: 40}, {1: B}, [KEPT])]


def test_whose_a_process_was_is_known_though_its_container_ended_first() -> None:
    gone = (2.0, {1: (7, 30)}, {1: HOST}, set[str]())
    assert play(ALIVE, gone, (4.0, {1: (0, 30)}, {}, set()), (6.0, {1: (0, 30)}, {}, set()))[1:] == [
        Listing({1: 30}, {1: HOST}, []),
        Listing({}, {}, [replace(LEFT, is_ending=True)]),
        Listing({}, {}, [LEFT]),
    ]


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
