"""Searches for memory of dead processes that nobody saw: what follows from answers, and when they are asked for."""

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from contained_program import first_process
from daemon import GIB

from convgpu.core.audit.attribution import ALL, Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts import places, unseen
from convgpu.daemon.audit.doubts.unseen import UnseenMemory
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, UnnamedError

COME = NamespaceAnswer(has_come=True)
LATE = NamespaceAnswer(trouble="no answer in time")
DISTURBED = NamespaceAnswer(is_disturbed=True)
A, B = Owner("a", "id"), Owner("b", "other")
# What a namespace answers: a full search, or what is said.
Answer = Mapping[int, int] | NamespaceAnswer | Exception


class Searched:
    """Answers searches one after the other, with the last answer again and again; keeps the questions."""

    def __init__(self, *answers: Answer, most: int = 99) -> None:
        self.answers = list(answers)
        self.most = most  # questions for which there is time
        self.questions: list[Sequence[NamespaceQuestion]] = []
        self.told: Mapping[int, int] = {}

    def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
        if not any(one.search for one in questions):
            return [
                NamespaceAnswer({"gpu": {pid: self.told[pid] for pid in one.inner if pid in self.told}})
                for one in questions
            ]
        self.questions.append(questions)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, NamespaceAnswer):
            return [answer for _ in questions[: self.most]]
        self.told = answer
        return [NamespaceAnswer({"gpu": answer}, searched=one.search) for one in questions[: self.most]]


INDEX = ProcessIndex({}, {"id": "a", "other": "b"}, {})
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")


def searcher(devices: object) -> Any:
    searching = cast("Any", UnseenMemory(cast("Any", devices)))
    searching._index = INDEX
    return searching


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[Owner, set[int]]]:
    """Containers by the inodes of their namespaces, with the pids that live there."""
    found: dict[int, tuple[Owner, set[int]]] = {7: (A, {1})}

    def find(_index: object, _own: int) -> dict[int, Any]:
        return {inode: places.Namespace(owner, os.dup(0), living) for inode, (owner, living) in found.items()}

    monkeypatch.setattr(unseen, "find_namespaces", find)
    return found


def search(devices: Searched, rounds: int) -> Any:
    """Return what is found after some searches."""

    async def run() -> Any:
        searching = searcher(devices)
        for _ in range(rounds):
            await searching._search()
        found = searching.found("gpu")
        searching.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        # As much as both found, whether or not they are known; 1 lives.
        ([{1: 5, 5: 7, 6: 9}, {1: 5, 5: 8, 6: 9}], {A: 16}),
        ([{}, {5: 8}, {7: 9}], {A: 8}),  # one after the other, without end
        ([{5: 8}, {}, {7: 9}], {A: 8}),  # for a moment there was none
        ([{5: 8}, {5: 8}, {}], {}),  # it is gone, or so much of it
        ([{5: 8}, {5: 8}, {7: 3}], {A: 3}),
        ([{5: 8}], {}),
        ([{5: 8}, {5: 8}, {}, {}], {}),  # it was freed
        ([{5: 8}, {5: 8}, COME, LATE, COME], {A: 8}),
        # Answers that tell nothing, one after the other: it may have been freed long ago.
        ([{5: 8}, {5: 8}, COME, COME, COME, LATE], {}),
        ([{5: 8}, DISTURBED], {A: ALL}),
        ([{5: 8}, DISTURBED, {5: 8}], {A: 8}),
        ([DISTURBED, *[COME] * 4], {}),
    ],
)
@pytest.mark.usefixtures("there")
def test_what_two_searches_find_of_the_dead_is_their_containers(
    answers: Sequence[Answer], found: Mapping[Owner, int]
) -> None:
    assert search(Searched(*answers), len(answers)) == found


def test_a_search_goes_on_where_the_last_one_was_at_its_end(there: dict[int, tuple[Owner, set[int]]]) -> None:
    """It begins at random, and asks again about those that were found: they need not wait until it comes around."""
    there[7] = A, set()
    holding, ids = {5: 8, 4_000_000: 9}, 1_000_000

    class Slow(Searched):
        def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
            [one] = questions
            if not one.search:
                return [NamespaceAnswer({"gpu": {pid: holding[pid] for pid in one.inner}})]
            self.questions.append(questions)
            covered = {(one.first + more) % one.search for more in range(ids)} if one.search == 1 << 22 else set()
            rows = {pid: size for pid, size in holding.items() if pid in covered | set(one.inner)}
            return [NamespaceAnswer({"gpu": rows}, searched=ids)]

    devices = Slow()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unseen, "most_pids", lambda: 1 << 22)
        assert search(devices, 7) == {A: 17}
    asked = [one for each in devices.questions for one in each]
    begun, again = asked[0].first, asked[5].first
    assert [one.first for one in asked[:5]] == [(begun + ids * number) % (1 << 22) for number in range(5)]
    assert again != (begun + 5 * ids) % (1 << 22)
    assert list(asked[6].inner) == [5, 4_000_000]


def test_who_was_not_asked_for_longest_is_first_where_there_is_no_time_for_all(
    there: dict[int, tuple[Owner, set[int]]],
) -> None:
    """What was found in one is still known while another is searched."""
    there[8] = B, set()
    assert search(Searched({5: 7}, most=1), 4) == {A: 7, B: 7}


@pytest.mark.usefixtures("there")
def test_what_keeps_anybody_from_being_asked_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    ended = NamespaceAnswer(trouble="it has ended")
    search(Searched(LATE, LATE, {}, ended, LATE), 5)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["no answer in time"] * 2


@pytest.mark.usefixtures("there")
def test_searches_that_find_the_same_are_made_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    part = NamespaceAnswer({"gpu": {}}, searched=1)
    devices = Searched(COME, part, {}, {5: GIB}, {5: GIB}, {5: GIB}, {5: 2 * GIB}, {5: 2 * GIB}, LATE)
    monkeypatch.setattr(unseen, "most_pids", lambda: 9)

    async def run() -> None:
        searching = searcher(devices)
        searching._task = asyncio.get_running_loop().create_task(asyncio.sleep(99))
        searching.follow({"gpu": GIB}, INDEX)
        # Of those that found the same: who was only come to was not asked, nor everybody in a part of a search.
        assert [await searching._search() for _ in range(9)] == [bool(int(one)) for one in "001001001"]
        assert [searching._rest() for _ in range(8)] == [0.5, 1.5, 3.5, 7.5, 15.5, 29.5, 29.5, 29.5]
        searching._changed.clear()
        for size, pause in ((GIB + (60 << 20), 30.0), (GIB + (70 << 20), 0.5)):  # little by little it is much, too
            searching.follow({"gpu": size}, INDEX)
            assert searching._pause == pause
            assert searching._changed.is_set() == (pause == 0.5)
        searching.close()

    asyncio.run(run())


@pytest.mark.usefixtures("there")
def test_a_rest_ends_when_what_is_nobodys_changes() -> None:
    async def run() -> None:
        devices = Searched({})
        searching = searcher(devices)
        searching._pause = 1000.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unseen, "_LONGEST", 1000.0)
            patch.setattr(unseen, "_PAUSE", 0.0)
            searching._nobodys = {"gpu": GIB}
            searching.follow({"gpu": GIB}, INDEX)
            for count in (1, 2, 3):
                while len(devices.questions) < count:
                    await asyncio.sleep(0)
                if count == 1:
                    searching.follow({"gpu": 2 * GIB}, INDEX)
                else:
                    searching.hurry()
        searching.close()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    ("fault", "count"), [(UnnamedError("driver 550"), 1), (DeviceError("no answer"), 3), (OSError(24, "too many"), 3)]
)
@pytest.mark.usefixtures("there")
def test_who_cannot_be_asked_finds_nothing(monkeypatch: pytest.MonkeyPatch, fault: Exception, count: int) -> None:
    """Who does not tell, is asked once; another fault may pass."""

    async def run() -> None:
        devices = Searched(fault)
        searching = searcher(devices)
        monkeypatch.setattr(unseen, "_FAILED", 0.0)
        searching.follow({"gpu": GIB}, INDEX)
        while len(devices.questions) < count:
            await asyncio.sleep(0)
        searching._until = 0.0
        await searching._task
        assert searching.found("gpu") == {}
        if count == 1:
            searching.follow({"gpu": GIB}, INDEX)
            assert searching._task.done()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("unended", "rounds", "found"),
    [
        (places.Unended(alive={5}), 3, {}),  # it began since it was looked who lives
        (places.Unended(exiting={5}), 2, {}),  # the driver may be about to free that
        (places.Unended(exiting={5}), 3, {A: 8}),  # or not
    ],
)
@pytest.mark.usefixtures("there")
def test_who_is_found_is_looked_for_once_more(
    monkeypatch: pytest.MonkeyPatch, unended: places.Unended, rounds: int, found: Mapping[Owner, int]
) -> None:
    monkeypatch.setattr(unseen, "unended_in", lambda _index: {"id": unended})
    assert search(Searched({5: 8}), rounds) == found


@pytest.mark.usefixtures("there")
def test_what_is_free_when_it_is_asked_about_again_is_nobodys() -> None:
    class Freed(Searched):
        def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
            answers = super().search_inside(questions)
            self.told = {}
            return answers

    assert search(Freed({5: 8}), 3) == {}


@pytest.mark.parametrize(
    ("holding", "told", "alive", "still"),
    [
        ({5: 8, 6: 4}, {5: 8, 6: 4}, set(), {A: 12}),
        ({5: 8, 6: 4}, {6: 4}, set(), {A: 4}),
        ({5: 8, 6: 4}, {5: 8, 6: 4}, {6}, {A: 8}),  # another process has the pid by now
        ({5: 8}, {}, set(), {A: 0}),
        ({5: 8}, {5: 9, 6: 4}, set(), {A: 8}),  # it is no search
        ({5: 8}, None, set(), {A: 8}),  # nobody tells
        ({}, {5: 8}, set(), {}),
    ],
)
@pytest.mark.usefixtures("there")
def test_who_was_found_is_asked_once_more_for_somebodys_allocation(
    monkeypatch: pytest.MonkeyPatch,
    holding: Mapping[int, int],
    told: Mapping[int, int] | None,
    alive: set[int],
    still: Mapping[Owner, int],
) -> None:
    async def run() -> None:
        devices = Searched(holding)
        searching = searcher(devices)
        for _ in range(3):
            await searching._search()
        before = searching.found("gpu")
        monkeypatch.setattr(unseen, "unended_in", lambda _index: {"id": places.Unended(alive=alive)})
        devices.told = told or {}
        if told is None:
            monkeypatch.setattr(devices, "search_inside", lambda questions: [LATE for _ in questions])
        assert await searching.confirm("gpu") == still
        assert searching.found("gpu") == before
        assert len(devices.questions) == 3
        searching.close()

    asyncio.run(run())


@pytest.mark.usefixtures("there")
def test_a_search_tells_of_what_was_before_it_began() -> None:
    async def run() -> list[int | None]:
        devices = Searched({5: 8}, {5: 8}, COME, {5: 8}, {5: 6})
        searching, seen = searcher(devices), []
        for _ in range(5):
            before = time.monotonic()
            await searching._search()
            seen.append(searching.found_since("a", "gpu", before))
        seen.append(searching.found_since("a", "gpu", time.monotonic()))
        seen.append(searching.found_since("b", "gpu", time.monotonic()))  # it has no namespace any more
        searching.close()
        return seen

    assert asyncio.run(run()) == [0, 8, None, 8, 6, None, 0]


@pytest.mark.usefixtures("there")
def test_who_was_found_counts_when_it_is_not_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes seconds; who waits for it does not."""
    monkeypatch.setattr(unseen, "_PATIENCE", 0.0)

    async def run() -> None:
        devices = Searched({5: 8})
        searching = searcher(devices)
        for _ in range(3):
            await searching._search()
        devices.told = {}
        with searching._asking:
            assert await searching.confirm("gpu") == {A: 8}
        monkeypatch.setattr(unseen, "_PATIENCE", 30.0)
        assert await searching.confirm("gpu") == {A: 0}
        searching._known[7].is_disturbed = True
        assert await searching.confirm("gpu") == {A: ALL}
        searching._forget()
        assert await searching.confirm("gpu") == {}

    asyncio.run(run())


@pytest.mark.usefixtures("there")
def test_what_is_forgotten_meanwhile_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        devices = Searched({5: 8})
        searching = searcher(devices)
        for _ in range(3):
            await searching._search()
        monkeypatch.setattr(unseen, "unended_in", lambda _index: searching._forget() or {})
        assert await searching.confirm("gpu") == {A: 8}
        assert searching.found("gpu") == {}

    asyncio.run(run())


@needs_root
def test_the_inode_of_a_namespace_stays_its_own_as_long_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would give it to the next container, which would be charged with what was found in this one."""
    rows: dict[int, str] = {}
    monkeypatch.setattr(places, "processes", lambda: list(rows))
    monkeypatch.setattr(places, "containers_of", lambda pid: [rows[pid]])

    async def run() -> None:
        searching, before = searcher(Searched({5: 7})), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with first_process() as pid:
            rows[pid] = "id"
            for _ in range(2):
                await searching._search()
        [(inode, known)] = searching._known.items()
        assert os.fstat(known.descriptor).st_ino == inode
        rows.clear()
        await searching._search()
        assert (searching._known, searching.found("gpu")) == ({}, {})
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    asyncio.run(run())


def test_who_asks_has_the_namespaces_until_it_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    seen = []

    class Slow:
        def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
            begun.set()
            goes_on.wait(60)
            seen.extend(os.fstat(one.namespace).st_ino for one in questions)
            ended.set()
            return []

    monkeypatch.setattr(unseen, "find_namespaces", lambda _index, _own: {7: places.Namespace(A, os.dup(0))})

    async def run() -> None:
        searching = searcher(Slow())
        searching.follow({"gpu": GIB}, INDEX)
        while not begun.is_set():
            await asyncio.sleep(0)
        searching.close()
        await asyncio.sleep(0)
        goes_on.set()

    asyncio.run(run())
    assert ended.wait(60)
    assert seen == [os.fstat(0).st_ino]
