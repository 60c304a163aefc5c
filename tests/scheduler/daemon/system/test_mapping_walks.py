"""Walks over what processes map: one that keeps its reader waiting, and how often they begin."""

import asyncio
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping

import pytest
from daemon import wait_until

from convgpu.core.audit.managed import Mapped
from convgpu.daemon.system.mapping_walks import MappingWalks
from convgpu.daemon.system.procfs import start_time

GIB = 1 << 30
ME, PARENT = os.getpid(), os.getppid()
X = frozenset({"x"})


def candidates() -> Iterable[tuple[int, frozenset[str]]]:
    return [(PARENT, X), (ME, frozenset())]


def make(size_of: Callable[[int], int], share: float = math.inf, most_silent: int = 64) -> MappingWalks:
    return MappingWalks(share, lambda _: 7, size_of, most_silent)


def sizes(found: Mapping[int, Mapped]) -> dict[int, int]:
    return {pid: one.size for pid, one in found.items()}


def test_what_is_told_of_a_process() -> None:
    async def run() -> tuple[float, Mapping[int, Mapped], float]:
        clock = asyncio.get_running_loop().time
        return clock(), await make({PARENT: 2 * GIB, ME: 16 << 20}.__getitem__).read(candidates), clock()

    before, found, after = asyncio.run(run())
    assert found == {PARENT: Mapped(2 * GIB, start_time(PARENT), X, used=7, at=found[PARENT].at)}
    assert before <= found[PARENT].at <= after


def test_who_shares_the_address_space_of_another_until_it_starts_its_program_has_nothing() -> None:
    told = iter([4 * GIB, 0, GIB, 2 * GIB])
    assert sizes(asyncio.run(make(lambda _: next(told)).read(candidates))) == {ME: GIB}


def test_a_process_that_keeps_its_reader_waiting_is_left_out_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    answers = threading.Event()

    def size_of(pid: int) -> int:
        if pid == PARENT:
            answers.wait()
        return {PARENT: 2 * GIB, ME: GIB}[pid]

    async def run() -> None:
        walks = make(size_of)
        # Two looks wait as long as they may, or more on a slow machine; after a second it is left out.
        while ME not in (found := sizes(await walks.read(candidates))):
            assert found == {}
        assert found == sizes(await walks.read(candidates)) == {ME: GIB}
        answers.set()
        while PARENT not in (found := sizes(await walks.read(candidates))):
            await asyncio.sleep(0)
        assert found == {PARENT: 2 * GIB, ME: GIB}  # what it tells late counts, too

    asyncio.run(run())
    text = f"what process {PARENT} maps has not been told for 1 s: it has very many mappings, or somebody holds its"
    assert [record.getMessage() for record in caplog.records] == [f"{text} address space"]


def test_a_walk_that_nobody_waits_for_goes_no_further() -> None:
    """Else each process that is slow to tell would leave a walk over all others behind."""
    answers, asked = threading.Event(), list[int]()

    def size_of(pid: int) -> int:
        asked.append(pid)
        if pid == PARENT:
            answers.wait()
        return 0

    async def run() -> None:
        walks = make(size_of)
        while ME not in asked:
            await walks.read(candidates)

    asyncio.run(run())
    answers.set()
    wait_until(lambda: not any(one.name == "mappings" for one in threading.enumerate()), "no walk goes on")
    assert asked == [PARENT, ME]


def test_with_too_many_of_them_nobody_is_asked_any_more() -> None:
    hang, asked = threading.Event(), list[int]()

    def size_of(pid: int) -> int:
        asked.append(pid)
        return int(hang.wait())

    async def run() -> None:
        walks = make(size_of, most_silent=3)
        for number in range(11):
            await walks.read(lambda number=number: [(ME + number, X)])  # type: ignore[misc]

    asyncio.run(run())
    hang.set()
    assert len(asked) == 3


def test_walks_take_their_part_of_the_time_and_no_more() -> None:
    asked: list[int] = []

    def size_of(pid: int) -> int:
        asked.append(pid)
        return GIB

    async def run() -> list[dict[int, int]]:
        walks = make(size_of, 1e-9)
        return [sizes(await walks.read(candidates)) for _ in range(3)]

    assert asyncio.run(run()) == [{PARENT: GIB, ME: GIB}] * 3
    assert asked == [PARENT, PARENT, ME, ME]
