"""About which processes the driver is asked, and which are remembered so that it can be asked about them later."""

from collections.abc import Mapping
from dataclasses import replace

from convgpu.core.audit.attribution import NOISE, TOLERATED, MemorySample, Owner
from convgpu.core.audit.listed import ListedProcesses, ProcessFacts

from .test_listed import ENDING, HOST, UNKNOWN, A, B, C, facts_of


def test_who_is_asked_about() -> None:
    processes = ListedProcesses()

    def doubts(size: int, start: int, owner: Owner, *, lease: int | None = None) -> object:
        sample = MemorySample("gpu", 100, 50, {1: size}, starts={1: start}, listed={1: size})
        return processes.doubtful(sample, facts_of(1, owner=owner, lease=lease))

    # Who has more than it may have, and who has memory without a session.
    assert doubts(TOLERATED + 20, 7, A, lease=20) == {}
    assert doubts(TOLERATED + 21, 7, A, lease=20) == {1: {7: True}}
    more = NOISE + 1
    assert (doubts(NOISE, 7, B), doubts(more, 7, HOST), doubts(more, 7, B)) == ({}, {}, {1: {7: True}})
    # Who has the pid of a dead one of another container, and who had it; and the dead one.
    first = MemorySample("gpu", 100, 50, {1: 30}, starts={1: 7})
    processes.update(first, facts_of(1, owner=A), 0.0)
    assert (doubts(30, 7, A, lease=30), doubts(30, 9, A, lease=30), doubts(30, 9, B)) == (
        {},
        {},
        {1: {7: True, 9: True}},
    )
    processes.update(replace(first, starts={1: 9}), facts_of(1, owner=B), 2.0)
    assert doubts(30, 11, C, lease=30) == {1: {7: True, 9: True, 11: True}}
    # Strangers' memory is no matter, whose of them it is.
    assert ListedProcesses().doubtful(first, facts_of(1, owner=HOST)) == {}
    ended = MemorySample("gpu", 100, 50, {}, ended={1: 30})
    assert processes.doubtful(ended, facts_of(1, owner=B)) == {1: {7: True, 9: True}}
    # A dead one of which more is listed than it had.
    alone = ListedProcesses()
    alone.update(first, facts_of(1, owner=A), 0.0)
    grown = [replace(ended, ended={1: 30 + more}) for more in (NOISE, NOISE + 1)]
    assert [alone.doubtful(one, facts_of(1, owner=A)) for one in grown] == [{}, {1: {7: True}}]


def test_a_sample_about_which_nobody_was_asked_changes_nothing_that_is_known() -> None:
    processes = ListedProcesses()
    first = MemorySample("gpu", 100, 50, {1: 30}, starts={1: 7}, asked=0.0)
    processes.update(first, facts_of(1, owner=A), 0.0)
    later = MemorySample("gpu", 100, 50, {1: 80}, starts={1: 9}, asked=1.0)
    assert processes.update(later, facts_of(1, owner=B), 1.0, stores=False).kept == [ENDING]
    assert processes.update(replace(first, asked=2.0), facts_of(1, owner=A), 2.0).held == {1: 30}


def test_the_dead_and_who_had_their_pids_are_remembered_for_the_next_question() -> None:
    processes = ListedProcesses()

    def see(rows: Mapping[int, tuple[int, int]], now: float) -> tuple[dict[int, str | None], set[tuple[int, int]]]:
        held = {pid: size for pid, (start, size) in rows.items() if start}
        ended = {pid: size for pid, (start, size) in rows.items() if not start}
        starts = {pid: start for pid, (start, _) in rows.items() if start}
        sample = MemorySample("gpu", 100, 50, held, ended=ended, starts=starts, answered=now - 0.5, listed=held)
        replaced = processes.replaced(sample)
        yes = lambda _: True  # noqa: E731 - for five facts
        facts = ProcessFacts(lambda _: A, lambda *_: UNKNOWN, lambda _: None, yes, yes, yes)
        processes.update(sample, facts, now)
        return replaced, processes.remembered("gpu")

    assert see({1: (7, 30)}, 0.0) == ({}, {(1, 7)})
    assert see({1: (9, 30)}, 2.0) == ({1: "a"}, {(1, 7), (1, 9)})
    assert see({1: (9, 30)}, 4.0) == ({1: None}, {(1, 7), (1, 9)})  # it was known to be dead
    assert see({1: (0, 30)}, 6.0) == ({}, {(1, 7), (1, 9)})
    assert see({}, 8.0) == ({}, set())
