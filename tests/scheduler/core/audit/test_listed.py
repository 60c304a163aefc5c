"""Whose the processes are that NVML lists: the living, the dead, and others that have a dead one's pid."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from convgpu.core.audit.attribution import NOISE, TOLERATED, Kept, MemorySample, Owner, Told
from convgpu.core.audit.listed import ListedProcesses, Listing, ProcessFacts

A = Owner("a", "id-a", has_session=True)
B = Owner("b", "id-b")
HOST = Owner()
UNKNOWN = Owner(is_known=False)
KEPT = Kept(1, 30, A, is_left=False)
LEFT = Kept(1, 30, A, is_left=True)


def play(
    *samples: tuple[float, Mapping[int, tuple[int, int]], Mapping[int, Owner], set[str]],
    told: Mapping[float, Mapping[int, Told]] | None = None,
    uses: bool | None = True,
    lease: int | None = None,
    keeps: bool = True,
    origin_of: Callable[[int, float, float], Owner] = lambda _pid, _since, _until: UNKNOWN,
) -> list[Listing]:
    """Return what follows from samples: time, (start, size) by pid with start 0 for the dead, owners, who runs.

    `uses`: whoever gets a dead process's pid has the driver open. `lease`: of those, None without a session.
    `told`: by time, what the driver tells of pids.
    `keeps`: others of a dead one's container have it open. `origin_of`: whose a process was that nobody saw alive.
    """
    processes = ListedProcesses()
    found = []
    for now, rows, owners, running in samples:
        held = {pid: size for pid, (start, size) in rows.items() if start}
        ended = {pid: size for pid, (start, size) in rows.items() if not start}
        starts = {pid: start for pid, (start, _) in rows.items() if start}
        sample = MemorySample("gpu", 100, 50, held, ended=ended, starts=starts, answered=now - 0.5, listed=held)
        sample = replace(sample, told=(told or {}).get(now, {}))
        asked = running.__contains__, lambda _: uses, lambda _: keeps
        facts = ProcessFacts(owners.__getitem__, origin_of, lambda _: lease, *asked)
        found.append(processes.update(sample, facts, now))
    return found


def facts_of(pid: int, *, owner: Owner, lease: int | None = None) -> ProcessFacts:
    def origin_of(_pid: int, _since: float, _until: float) -> Owner:
        return UNKNOWN

    yes = lambda _: True  # noqa: E731 - says all of it
    return ProcessFacts({pid: owner}.__getitem__, origin_of, lambda _: lease, yes, yes, yes)


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
    nobodys = Kept(1, 12, UNKNOWN, is_left=True)  # there was no time to look
    assert play(ALIVE, (4.0, {1: (9, 30)}, {1: B}, {"a", "b"}), innocent, uses=None)[2].kept == [KEPT, nobodys]


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
    """Also when that one has ended, and what it has is kept: then who keeps it can make more of it."""
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
        Listing({}, {}, [KEPT, rest(55)]),
        Listing({1: 10}, {1: other}, [KEPT, rest(55)]),
        Listing({}, {}, [KEPT, rest(15)]),
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


C = Owner("c", "id-c", has_session=True)
NAMES = {"a", "b", "c"}


def test_what_is_told_of_who_has_a_dead_ones_pid_is_certain() -> None:
    """More than was leased to it is its own, and what the keeper of the dead one makes more of is the dead one's.

    Whose it is, may be known only later: it enters its cgroup after it began.
    """
    told = {
        3.0: {1: Told({7: 30, 9: 0})},
        4.0: {1: Told({7: 30, 9: 50})},
        6.0: {1: Told({7: 40, 9: 50})},
        8.0: {1: Told({7: 40, 9: 50})},
        10.0: {1: Told({7: 40, 9: 50, 11: 7})},
        12.0: {1: Told({7: 0, 9: 0, 11: 7})},
    }
    b, c = Kept(1, 50, B, is_left=False), {1: C}
    assert play(
        ALIVE,
        (3.0, {1: (9, 30)}, {1: HOST}, NAMES),
        (4.0, {1: (9, 80)}, {1: B}, NAMES),
        (6.0, {1: (9, 90)}, {1: B}, NAMES),
        (8.0, {1: (0, 90)}, {}, NAMES),
        (10.0, {1: (11, 97)}, c, {"a", "c"}),
        (12.0, {1: (11, 7)}, c, NAMES),
        lease=20,
        told=told,
    )[2:] == [
        Listing({1: 50}, {1: B}, [KEPT]),
        Listing({1: 50}, {1: B}, [replace(KEPT, size=40)]),
        Listing({}, {}, [replace(KEPT, size=40), b]),
        Listing({1: 7}, c, [replace(KEPT, size=40), replace(b, is_left=True)]),
        Listing({1: 7}, c, []),
    ]


def test_what_was_there_only_before_who_asked_is_nobodys() -> None:
    """Either may have freed it meanwhile: it is not the dead one's, nor that of who lives."""
    rest = Kept(1, 10, UNKNOWN, is_left=True)
    for one in (Told({7: 30, 9: 40}), Told({9: 40}, others=30)):
        found = play(ALIVE, (4.0, {1: (9, 80)}, {1: B}, NAMES), told={4.0: {1: one}})
        assert found[1] == Listing({1: 40}, {1: B}, [ENDING, rest])
    # Who takes more between the list and the answer has no more than is left.
    told = {4.0: {1: Told({7: 30, 9: 90})}}
    assert play(ALIVE, (4.0, {1: (9, 80)}, {1: B}, NAMES), told=told)[1] == Listing({1: 50}, {1: B}, [ENDING])


def test_more_than_a_dead_one_had_is_nobodys_if_nobody_was_told_of_it() -> None:
    """One that came and went unseen may have left it, and another look may find who that was."""
    rows = [(4.0, {1: (9, 80)}, {1: B}, NAMES), (6.0, {1: (9, 90)}, {1: B}, NAMES)]
    told = {4.0: {1: Told({9: 50}, others=30)}, 6.0: {1: Told({9: 50}, others=40)}}
    rest = Kept(1, 10, UNKNOWN, is_left=True)
    assert play(ALIVE, *rows, told=told)[2] == Listing({1: 50}, {1: B}, [KEPT, rest])


def test_who_was_not_told_of_for_a_look_is_taken_for_nobody_else() -> None:
    """Of three that had the pid the second one was not told of: it is not the third, nor that one's container's."""
    rows = [
        ALIVE,
        (4.0, {1: (9, 80)}, {1: C}, NAMES),
        (6.0, {1: (11, 90)}, {1: B}, NAMES),
        (8.0, {1: (11, 90)}, {1: B}, NAMES),
        (10.0, {1: (11, 90)}, {1: B}, NAMES),
    ]
    all_told = Told({7: 30, 9: 50, 11: 10})
    told = {4.0: {1: Told({7: 30, 9: 50})}, 6.0: {1: Told({7: 30, 11: 10})}, 10.0: {1: all_told}}
    b, c, rest = {1: B}, Kept(1, 50, C, is_left=False), Kept(1, 50, UNKNOWN, is_left=True)
    assert play(*rows, lease=20, told=told)[2:] == [
        Listing({1: 10}, b, [KEPT, rest]),
        Listing({1: 10}, b, [KEPT, rest]),
        Listing({1: 10}, b, [KEPT, c]),
    ]


def test_who_lives_is_not_charged_for_a_dead_one_that_nobody_saw() -> None:
    """Nor is its container: the only birth with that pid since the last look is its own."""
    size = 2 * NOISE
    rest = Kept(1, size, UNKNOWN, is_left=True)
    told = {2.0: {1: Told({7: 30}, others=size)}, 4.0: {1: Told({7: 30}, others=size)}}
    rows = [(now, {1: (7, 30 + size)}, {1: A}, NAMES) for now in (2.0, 4.0)]
    found = play(ALIVE, *rows, told=told, origin_of=lambda *_: A)
    assert found[1:] == [Listing({1: 30}, {1: A}, [rest])] * 2
    assert play(rows[0], told={2.0: {1: Told({7: 0}, others=30 + size)}}) == [
        Listing({}, {}, [replace(rest, size=30 + size)])
    ]
    # A little can be what was freed just now.
    told = {2.0: {1: Told({7: 30}, others=NOISE)}}
    assert play(rows[0], told=told) == [Listing({1: 30 + size}, {1: A}, [])]


def test_all_that_came_is_of_whose_container_ends_whoever_asks() -> None:
    rows = (4.0, {1: (9, 30 + TOLERATED + 99)}, {1: B}, NAMES)
    told = {4.0: {1: Told({}, others=30 + TOLERATED + 99, disturbed={9})}}
    rest = Kept(1, 79, UNKNOWN, is_left=True)
    assert play(ALIVE, rows, lease=20)[1] == Listing({1: TOLERATED + 20}, {1: B}, [ENDING, rest])
    assert play(ALIVE, rows, lease=20, told=told)[1] == Listing({1: TOLERATED + 99}, {1: B}, [ENDING])
    # Also when that one has ended, and another of its container ends who asks.
    dead = 6.0, {1: (0, 30 + TOLERATED + 99)}, {}, NAMES
    told[6.0] = told[4.0]
    kept = [KEPT, Kept(1, TOLERATED + 99, B, is_left=False)]
    assert play(ALIVE, rows, dead, lease=20, told=told)[2] == Listing({}, {}, kept)


def test_managed_memory_is_of_who_lives() -> None:
    """It is not listed, and was found in that one's address space."""
    sample = MemorySample("gpu", 100, 90, {1: 60}, starts={1: 9}, listed={1: 35}, told={1: Told({9: 5}, others=30)})
    processes, facts = ListedProcesses(), facts_of(1, lease=20, owner=B)
    processes.update(MemorySample("gpu", 100, 50, {1: 30}, starts={1: 7}, listed={1: 30}), facts_of(1, owner=A), 0.0)
    assert processes.update(sample, facts, 4.0) == Listing({1: 30}, {1: B}, [ENDING])


def test_what_was_told_to_be_nobodys_stays_so_where_nobody_is_told_for_a_look() -> None:
    size = 2 * NOISE
    rest = Kept(1, size, UNKNOWN, is_left=True)
    rows = [(now, {1: (7, 30 + size)}, {1: B}, NAMES) for now in (2.0, 4.0)]
    found = play(*rows, told={2.0: {1: Told({7: 30}, others=size)}})
    assert found == [Listing({1: 30}, {1: B}, [rest])] * 2
    dead = [(now, {1: (0, 120)}, {}, NAMES) for now in (6.0, 8.0)]
    told = {4.0: {1: Told({7: 30, 9: 0})}, 6.0: {1: Told({7: 30, 9: 0})}}
    rows = [(4.0, {1: (9, 30)}, {1: B}, NAMES), *dead]
    assert play(ALIVE, *rows, told=told)[2:] == [Listing({}, {}, [KEPT, replace(rest, size=90)])] * 2


def test_a_dead_one_that_could_not_be_told_of_has_again_what_others_freed_for_a_look() -> None:
    rows = [(now, {1: (9, 80)}, {1: B}, NAMES) for now in (4.0, 6.0)]
    told = {4.0: {1: Told({9: 50}, others=0)}, 6.0: {1: Told({9: 50}, others=30)}}
    rest = Kept(1, 30, UNKNOWN, is_left=True)
    assert play(ALIVE, *rows, told=told)[1:] == [
        Listing({1: 50}, {1: B}, [rest]),
        Listing({1: 50}, {1: B}, [KEPT]),
    ]


def test_whose_a_process_is_does_not_change_to_another_container() -> None:
    """Who has its pid by the time that it is asked, is somebody else."""
    rows = [(2.0, {1: (7, 30)}, {1: B}, NAMES), (4.0, {1: (0, 30)}, {}, NAMES)]
    assert play(ALIVE, *rows)[1:] == [Listing({1: 30}, {1: A}, []), Listing({}, {}, [ENDING])]


def test_managed_memory_of_who_began_since_the_list_is_not_what_is_listed() -> None:
    processes = ListedProcesses()
    processes.update(MemorySample("gpu", 100, 50, {1: 30}, starts={1: 7}), facts_of(1, owner=A), 0.0)
    both = MemorySample("gpu", 100, 50, {1: 20}, ended={1: 30}, starts={1: 9}, listed={})
    assert processes.update(both, facts_of(1, owner=B), 4.0) == Listing({1: 20}, {1: B}, [ENDING])


@pytest.mark.parametrize(
    ("lease", "unasked", "expected"),
    [
        (None, {7: 30, 9: 0}, Listing({}, {}, [KEPT, Kept(1, 12, UNKNOWN, is_left=True)])),
        (None, {7: None, 9: None}, Listing({}, {}, [KEPT, Kept(1, 12, UNKNOWN, is_left=True)])),
        (None, {7: 20, 9: 10}, Listing({1: 10}, {1: B}, [replace(KEPT, size=20), Kept(1, 12, UNKNOWN, is_left=True)])),
        (5, {7: 30, 9: 0}, Listing({1: 12}, {1: B}, [KEPT])),
    ],
)
def test_nothing_is_guessed_of_who_could_be_asked_and_was_not(
    lease: int | None, unasked: Mapping[int, int | None], expected: Listing
) -> None:
    """Who keeps a dead one's memory could make more of it while nobody asks, and have an innocent ended."""
    told = {6.0: {1: Told({}, unasked=unasked)}}
    innocent = [(time, {1: (9, size)}, {1: B}, {"a", "b"}) for time, size in ((4.0, 30), (6.0, 42))]
    assert play(ALIVE, *innocent, told=told, lease=lease)[2] == expected


def test_what_is_nobodys_while_there_is_no_time_to_ask_can_be_anybodys_afterwards() -> None:
    """Who is ended whenever he asks has just come at first: there is nothing to be told yet."""
    told = {4.0: {1: Told({7: 30}, unasked={9: None})}, 6.0: {1: Told({7: 30}, disturbed={9})}}
    rows = [(now, {1: (9, 92)}, {1: B}, NAMES) for now in (4.0, 6.0)]
    assert [one.held for one in play(ALIVE, *rows, told=told)] == [{1: 30}, {}, {1: 62}]


def test_what_came_to_a_dead_ones_memory_is_not_its_own_if_it_was_told_to_have_less() -> None:
    """Another one had its pid between two looks, and somebody makes more of that one's memory."""
    rows = [(now, {1: (0, 92)}, {}, {"a"}) for now in (4.0, 6.0)]
    rest = replace(KEPT, size=62, owner=UNKNOWN, is_left=True)
    told = {4.0: {1: Told({}, unasked={7: None})}, 6.0: {1: Told({7: 30})}}
    assert [one.kept for one in play(ALIVE, *rows, told=told)[1:]] == [[ENDING, rest], [KEPT, rest]]
    assert play(ALIVE, *rows)[2].kept == [replace(KEPT, size=92)]  # nobody is told of it


def test_who_ended_before_its_container_was_looked_at_is_as_one_that_nobody_saw() -> None:
    """Births tell whose it was; without them it is nobody's, and not the host's."""
    samples = (0.0, {}, {}, {"b"}), (2.0, {1: (7, 30)}, {1: UNKNOWN}, {"b"}), (4.0, {1: (0, 30)}, {}, {"b"})
    asked = []

    def origin_of(pid: int, since: float, until: float) -> Owner:
        asked.append((pid, since, until))
        return B

    told, untold = play(*samples, origin_of=origin_of)[-1], play(*samples)[-1]
    assert (told.kept, untold.kept) == (
        [Kept(1, 30, B, is_left=False, is_ending=True)],
        [Kept(1, 30, UNKNOWN, is_left=True, is_ending=True)],
    )
    assert asked == [(1, 0.0, 1.5)]
