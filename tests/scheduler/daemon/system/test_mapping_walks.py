"""Walks over what processes map: one that keeps its reader waiting, and how often they begin."""

import asyncio
import math
import os
import threading
from collections.abc import Iterable

import pytest

from convgpu.core.audit.managed import Mapped
from convgpu.daemon.system.mapping_walks import MappingWalks
from convgpu.daemon.system.procfs import start_time

GIB = 1 << 30
ME, PARENT = os.getpid(), os.getppid()


def candidates() -> Iterable[tuple[int, frozenset[str]]]:
    return [(PARENT, frozenset({"x"})), (ME, frozenset())]


PARENTS = Mapped(2 * GIB, start_time(PARENT), frozenset({"x"}))
MINE = Mapped(GIB, start_time(ME), frozenset())


def test_a_process_that_keeps_its_reader_waiting_is_left_out_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    answers = threading.Event()

    def size_of(pid: int) -> int:
        if pid == PARENT:
            answers.wait()
        return {PARENT: 2 * GIB, ME: GIB}[pid]

    async def run() -> list[dict[int, Mapped]]:
        walks = MappingWalks(math.inf, size_of)
        seen = [dict(await walks.read(candidates)) for _ in range(3)]
        answers.set()
        while PARENT not in (found := dict(await walks.read(candidates))):
            await asyncio.sleep(0)
        return [*seen, found]

    # The first look waits as long as it may; the next one finds the walk where it was.
    assert asyncio.run(run()) == [{}, {ME: MINE}, {ME: MINE}, {PARENT: PARENTS, ME: MINE}]
    text = f"what process {PARENT} maps cannot be read: somebody holds its address space"
    assert [record.getMessage() for record in caplog.records] == [text]


def test_with_too_many_of_them_nobody_is_asked_any_more() -> None:
    hang, asked = threading.Event(), []

    def size_of(pid: int) -> int:
        asked.append(pid)
        return int(hang.wait())

    async def run() -> None:
        walks = MappingWalks(math.inf, size_of, 3)
        for number in range(5):
            await walks.read(lambda number=number: [(ME + number, frozenset())])  # type: ignore[misc]

    asyncio.run(run())
    hang.set()
    assert asked == [ME + number for number in range(3)]


def test_walks_take_their_part_of_the_time_and_no_more() -> None:
    asked: list[int] = []

    def size_of(pid: int) -> int:
        asked.append(pid)
        return GIB

    async def run() -> list[dict[int, Mapped]]:
        walks = MappingWalks(1e-9, size_of)
        seen = [dict(await walks.read(candidates)) for _ in range(3)]
        walks.forget()
        return [*seen, dict(await walks.read(candidates))]

    both = {PARENT: Mapped(GIB, start_time(PARENT), frozenset({"x"})), ME: MINE}
    assert asyncio.run(run()) == [both, both, both, {}]
    assert asked == [PARENT, ME]
