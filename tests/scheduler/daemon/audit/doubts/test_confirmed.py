"""Whom searches found are asked once more, for somebody's allocation; the searches go on as if nobody had."""

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from contained_program import program, said
from daemon import GIB, Process, running_daemon, wait_until
from test_searches import searcher
from test_unseen import NAMESPACE, OPTIONS, TWIN

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit.doubts import places, unseen
from convgpu.daemon.audit.doubts.known import Known
from convgpu.daemon.gpu import namespace_program
from convgpu.daemon.gpu.namespace_lists import MOST_NAMESPACES, NamespaceAnswer, NamespaceQuestion

MIB = 1 << 20


class Residents:
    """The real program's residents; each tells what its namespace holds.

    Attributes:
        come: the inodes of namespaces to which one has come.
        asked: how many questions were asked at a time.
        during: is called when somebody asks.
    """

    def __init__(self, holding: Mapping[int, Mapping[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.come, self.asked = list[int](), list[int]()
        self.during: Callable[[], None] = lambda: None
        come = self.come

        class Resident:
            def __init__(self, _driver: object, namespace: int, _unneeded: object) -> None:
                self.inode, self.descriptors = os.fstat(namespace).st_ino, ()
                come.append(self.inode)

            def ask(self, question: NamespaceQuestion) -> NamespaceAnswer:
                rows = holding[self.inode]
                if question.search:
                    return NamespaceAnswer({"gpu": rows}, searched=question.search)
                return NamespaceAnswer({"gpu": {pid: rows[pid] for pid in question.inner if pid in rows}})

            def leave(self) -> None:
                pass

        monkeypatch.setattr(namespace_program, "_Resident", Resident)
        self._residents = namespace_program._Residents(cast("Any", None))

    def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
        self.asked.append(len(questions))
        self.during()
        return self._residents.answer(questions, [os.dup(one.namespace) for one in questions])


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Makes so many containers with namespaces; returns their inodes."""
    with ExitStack() as opened:

        def make(count: int) -> list[int]:
            files = [opened.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
            inodes = [os.fstat(one.fileno()).st_ino for one in files]

            def find(_index: object, _own: int) -> Mapping[int, places.Namespace]:
                rows = zip(inodes, files, range(count), strict=True)
                return {
                    inode: places.Namespace(Owner(f"v{number}", f"id{number}"), os.dup(one.fileno()), {1})
                    for inode, one, number in rows
                }

            monkeypatch.setattr(unseen, "find_namespaces", find)
            monkeypatch.setattr(unseen, "unended_in", lambda _index: {})
            return inodes

        yield make


def descriptors_of(inode: int) -> int:
    count = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of this very look
            count += one.stat().st_ino == inode
    return count


def sizes(searching: Any) -> dict[str | None, int]:
    return {owner.volume: size // MIB for owner, size in searching.found("gpu").items()}


def test_who_asks_elsewhere_stays_there(make: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not named leaves, and has only come again in the next search: others' dead were never found."""
    first, second = make(2)
    holding: dict[int, dict[int, int]] = {first: {5: 100 * MIB}, second: {}}

    async def run() -> None:
        searching = searcher(devices := Residents(holding, monkeypatch))
        for _ in range(4):
            await searching._search()
        holding[second] = {9: 500 * MIB}
        for _ in range(4):
            assert (await searching.confirm("gpu"))[Owner("v0", "id0")] == 100 * MIB
            await searching._search()
        assert sizes(searching) == {"v0": 100, "v1": 500}
        assert sorted(devices.come) == sorted((first, second))
        searching.close()

    asyncio.run(run())


def test_no_more_are_asked_than_can_be(make: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    inodes = make(MOST_NAMESPACES + 6)

    async def run() -> None:
        searching = searcher(devices := Residents({inode: {5: 100 * MIB} for inode in inodes}, monkeypatch))
        for _ in range(12):
            await searching._search()
        found = searching.found("gpu")
        assert await searching.confirm("gpu") == found
        assert max(devices.asked) == MOST_NAMESPACES
        searching.close()

    asyncio.run(run())


def test_nobody_waits_long_for_its_turn_and_no_threads_stay(
    make: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gives up asks no more: a hanging driver had a thread with descriptors wait for each allocation."""
    monkeypatch.setattr(unseen, "_PATIENCE", 0.01)
    [inode] = make(1)

    async def run() -> None:
        searching = searcher(devices := Residents({inode: {5: 100 * MIB}}, monkeypatch))
        threads = threading.active_count()
        for _ in range(4):
            await searching._search()
        wait_until(lambda: threading.active_count() <= threads, "those that searched have ended")
        before = len(devices.asked), descriptors_of(inode)
        with searching._asking:
            for _ in range(20):
                assert sizes(searching) == {"v0": 100}
                await searching.confirm("gpu")
            wait_until(lambda: threading.active_count() <= threads, "nobody waits any more")
        assert (len(devices.asked), descriptors_of(inode)) == before
        searching.close()

    asyncio.run(run())


def test_who_asks_is_not_begun_anew_when_searches_are_over(
    make: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    [inode] = make(1)

    async def run() -> None:
        searching = searcher(devices := Residents({inode: {5: 100 * MIB}}, monkeypatch))
        for _ in range(4):
            await searching._search()
        asked = len(devices.asked)
        searching._is_over = True
        assert (await searching.confirm("gpu")) == searching.found("gpu")
        assert len(devices.asked) == asked
        searching._until = 0.0
        await searching._run()  # has nothing to do
        assert (devices.asked[asked:], searching._is_over) == ([0], True)

    asyncio.run(run())


def test_two_never_ask_at_once(make: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """They speak to one program by one channel."""
    [inode] = make(1)
    inside, most = [0], [0]

    def ask() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)  # a question takes its time
        inside[0] -= 1

    async def run() -> None:
        searching = searcher(devices := Residents({inode: {5: 100 * MIB}}, monkeypatch))
        for _ in range(4):
            await searching._search()
        devices.during = ask
        await asyncio.gather(searching._search(), *(searching.confirm("gpu") for _ in range(5)))
        assert most == [1]
        searching.close()

    asyncio.run(run())


def test_what_a_volumes_containers_hold_is_told_by_searches_of_all_of_them() -> None:
    searching = searcher(None)
    for inode, (volume, told) in enumerate((("v", 5.0), ("v", 3.0), ("w", 1.0))):
        known = Known(Owner(volume, str(inode)), -1, is_through=True, told=told)
        known.sizes = {"gpu": (inode + 1) * MIB}
        searching._known[inode] = known
    answers = [searching.found_since("v", "gpu", since) for since in (2.9, 3.0, 4.0, 5.0)]
    assert answers == [3 * MIB, None, None, None]
    assert searching.found_since("w", "gpu", 0.0) == 3 * MIB
    assert (searching.found_since("v", "other", 0.0), searching.found_since("unknown", "gpu", 9.0)) == (0, 0)


def test_who_asks_for_memory_all_the_time_hides_nobodys_dead(tmp_path: Path, make_cgroup: Callable[[], Path]) -> None:
    """A real scheduler: `a` has a little of a dead process and is refused without end; `b` is ended for its own."""
    asking, taking = make_cgroup(), make_cgroup()
    twins = []
    for size in (1, 5):
        twins.append(tmp_path / f"twin{size}")
        source = TWIN.replace("(size_t)5 << 30", f"(size_t){size} << 30")
        subprocess.run(["cc", "-x", "c", "-", "-o", twins[-1], "-ldl"], input=source, text=True, check=True)
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        folder, _ = daemon.container("a", memory="4g"), daemon.container("b", memory="1g")
        rows = {"a": asking.name, "b": taking.name}
        listed = [{"id": own, "name": name, "state": "running", "volumes": [name]} for name, own in rows.items()]
        daemon.admin.request("listed", asked=0.0, containers=listed, volumes=["a", "b"])
        waits = "time.sleep(0.1)"
        with program(daemon, NAMESPACE, asking, str(asking), str(twins[0]), waits) as one:
            assert said(one) == "\n"
            wait_until(lambda: daemon.state("a")["devices"][0]["usage"] > GIB, "it is charged with its dead one")
            process = Process(folder)
            process.hello()
            with program(daemon, NAMESPACE, taking, str(taking), str(twins[1]), waits) as two:
                assert said(two) == "\n"
                until = time.monotonic() + 60
                while not daemon.events("stopped") and time.monotonic() < until:
                    process.answer(process.allocate(4 * GIB - MIB))
                two.wait(60)
        assert [event["container"] for event in daemon.events("stopped")] == ["b"]
