"""When the memory of an ended process counts as free, on a device whose every look is written down."""

import asyncio
import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from convgpu.core.audit.attribution import UNCOUNTED
from convgpu.daemon.gpu.nvml import Device, UnnamedError
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.gpu.settling import MAX_SETTLING_TIME, Settling

GIB = 1 << 30
MIB = 1 << 20
OWN = 615 * MIB  # what an H200 has in use when nobody uses it

# What a look finds: bytes in use, and bytes by pid before and after that.
Look = tuple[int, Mapping[int, int], Mapping[int, int]]


class Card:
    """Shows one look after the other, then the last one again and again. `looks`: how many were taken."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self.looks = 0
        self._left = list(looks)
        self._before = True

    def list(self) -> Sequence[Device]:
        return []

    def total(self, uuid: str) -> int:
        raise NotImplementedError

    def used(self, uuid: str) -> int:
        assert uuid == "gpu"
        self._before = False
        return self._left[0][0]

    def used_by(self, uuid: str) -> Mapping[int, int]:
        assert uuid == "gpu"
        if self._before:
            return self._left[0][1]
        held = self._left[0][2]
        self._before = True
        self.looks += 1
        if len(self._left) > 1:
            self._left.pop(0)
        return held


class Nameless(Card):
    """A driver that cannot tell who uses what."""

    def used_by(self, uuid: str) -> Mapping[int, int]:
        raise UnnamedError(f"processes of {uuid}: Not Supported")


def steady(used: int, **held: int) -> Look:
    by_pid = {int(pid.removeprefix("p")): size for pid, size in held.items()}
    return used, by_pid, by_pid


async def settle(card: Card) -> int:
    """Watch what a process left behind; return the looks that it took."""
    settled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    settling = Settling(NvmlExecutor(card), {"gpu": OWN}, settled.set_result)
    settling.watch(7, None, {"gpu": 5 * GIB})
    assert await asyncio.wait_for(settled, MAX_SETTLING_TIME / 2) == 7
    return card.looks


def test_free_as_soon_as_the_driver_has_freed_it() -> None:
    card = Card([steady(OWN + 5 * GIB), steady(OWN + 5 * GIB), steady(OWN)])
    assert asyncio.run(settle(card)) == 3


def test_what_others_hold_beyond_our_ledger_is_no_reason_to_wait() -> None:
    others = 3 * GIB + 92 * MIB
    card = Card([steady(OWN + 5 * GIB + others, p1=others), steady(OWN + others, p1=others)])
    assert asyncio.run(settle(card)) == 2


def test_nor_is_what_the_driver_takes_for_a_process_and_counts_for_nobody() -> None:
    card = Card([steady(OWN + GIB + UNCOUNTED, p1=GIB)])
    assert asyncio.run(settle(card)) == 1


def test_nor_is_that_of_a_small_context() -> None:
    card = Card([steady(OWN + (105 + 9) * MIB, p1=105 * MIB)])
    assert asyncio.run(settle(card)) == 1


def test_memory_that_settles_does_not_hide_behind_many_small_processes() -> None:
    small, sizes = 300 * (2 << 20), {f"p{number}": 2 << 20 for number in range(300)}
    card = Card([steady(OWN + small + 4 * GIB, **sizes), steady(OWN + small, **sizes)])
    assert asyncio.run(settle(card)) == 2


@pytest.mark.parametrize("before_and_after", [(5 * GIB, 0), (0, 5 * GIB)])
def test_a_change_between_the_looks_does_not_pass_for_it(before_and_after: tuple[int, int]) -> None:
    before, after = ({1: size} for size in before_and_after)
    card = Card([(OWN + 5 * GIB, before, after), steady(OWN)])
    assert asyncio.run(settle(card)) == 2


def test_a_driver_that_names_no_processes_is_done_when_the_process_is() -> None:
    assert asyncio.run(settle(Nameless([steady(OWN + 5 * GIB)]))) == 0


@pytest.mark.parametrize("is_full", [False, True])
def test_the_end_of_the_process_is_seen_also_where_the_kernel_registers_no_more(is_full: bool) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def check() -> None:
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[int] = loop.create_future()
        if is_full:
            loop.add_reader = refuse  # type: ignore[method-assign]
        settling = Settling(NvmlExecutor(Card([steady(OWN)])), {"gpu": OWN}, settled.set_result)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            settling.watch(7, os.pidfd_open(process.pid), {"gpu": GIB})
            for _ in range(5):
                await asyncio.sleep(0)  # a turn of the loop
            assert not settled.done()
        assert await asyncio.wait_for(settled, MAX_SETTLING_TIME / 2) == 7

    asyncio.run(check())


def test_what_an_ending_process_held_settles_for_as_long_as_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgpu.daemon.gpu.settling.MAX_SETTLING_TIME", 0.0)
    monkeypatch.setattr("convgpu.daemon.gpu.settling.is_exiting", lambda _: True)

    async def check() -> None:
        settled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ended: list[int] = []
        settling = Settling(NvmlExecutor(Card([steady(OWN)])), {"gpu": OWN}, settled.set_result, ended.append)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            settling.watch(7, os.pidfd_open(process.pid), {"gpu": GIB}, ending=process.pid)
            for _ in range(5):
                await asyncio.sleep(0)  # a turn of the loop
            assert (ended, settled.done()) == ([], False)
        assert await asyncio.wait_for(settled, 60) == 7
        assert ended == [7]

    asyncio.run(check())


_SEIZE, _ANY_THREAD = 0x4206, 0x40000000  # ptrace(2), waitpid(2)
_TWO_THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print(threading.enumerate()[1].native_id, flush=True)
"""


def test_who_traces_a_thread_and_does_not_wait_for_it_delays_nothing() -> None:
    """Until then the pidfd tells of no end, though the kernel has closed the files of all threads."""

    async def check() -> None:
        settled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        settling = Settling(NvmlExecutor(Card([steady(OWN)])), {"gpu": OWN}, settled.set_result)
        with subprocess.Popen([sys.executable, "-c", _TWO_THREADS], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            thread = int(process.stdout.readline())
            assert ctypes.CDLL(None).ptrace(_SEIZE, thread, None, None) == 0
            watched = os.pidfd_open(process.pid)
            process.kill()
            settling.watch(7, watched, {"gpu": GIB}, ending=process.pid)
            try:
                assert await asyncio.wait_for(settled, 20) == 7
            finally:
                os.waitpid(thread, _ANY_THREAD)

    asyncio.run(check())
