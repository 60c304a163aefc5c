"""What a sample says of a program that ends while it is taken (a real one), and of memory without an owner."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core.audit.attribution import UNCOUNTED, MemorySample
from convgpu.core.audit.managed import Mapped
from convgpu.daemon.audit.sampling import OwnerlessMemory, sample_device
from convgpu.daemon.gpu.nvml import Device, DeviceError
from convgpu.daemon.system.procfs import start_time

GIB = 1 << 30


class Card:
    """One on which this program has 1 GiB and another 2, which ends once it is listed.

    Args:
        program: the other.
        kept: how much of its memory is listed afterwards.
        late: it takes its memory after the first count of what is in use.
    """

    def __init__(self, program: subprocess.Popen[bytes], kept: int, *, late: bool = False) -> None:
        self._program = program
        self._kept = kept
        self._late = late

    def list(self) -> Sequence[Device]:
        raise NotImplementedError

    def check(self, uuid: str) -> None:
        assert uuid == "gpu"

    def total(self, uuid: str) -> int:
        assert uuid == "gpu"
        return 16 * GIB

    def used(self, uuid: str) -> int:
        """Return that, and 1 GiB of the driver's own."""
        assert uuid == "gpu"
        lives = self._program.returncode is None
        size = 2 * GIB if lives and not self._late else 0 if lives else self._kept
        return 2 * GIB + size

    def used_by(self, uuid: str) -> Mapping[int, int]:
        assert uuid == "gpu"
        size = 2 * GIB if self._program.returncode is None else self._kept
        self._program.kill()
        self._program.wait()
        return {os.getpid(): GIB} | ({self._program.pid: size} if size else {})


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


def sample(program: subprocess.Popen[bytes], kept: int, *, late: bool = False) -> MemorySample:
    return sample_device(Card(program, kept, late=late), "gpu")  # type: ignore[arg-type]


def test_what_it_freed_meanwhile_is_nobodys_and_not_in_use(program: subprocess.Popen[bytes]) -> None:
    """Its container was charged with it, and its next program was refused for that."""
    found = sample(program, 0)
    assert (found.held, found.ended, found.used) == ({os.getpid(): GIB}, {}, 2 * GIB)


def test_what_it_took_after_the_first_count_is_not_subtracted_from_that(program: subprocess.Popen[bytes]) -> None:
    """Else less is in use than the driver takes for itself, and what that is, is remembered."""
    assert sample(program, 0, late=True).used == 2 * GIB


@pytest.mark.parametrize("kept", [GIB, 2 * GIB, 3 * GIB])
def test_what_somebody_keeps_of_it_is_listed_still(program: subprocess.Popen[bytes], kept: int) -> None:
    found = sample(program, kept)
    size = min(kept, 2 * GIB)
    assert (found.held, found.ended) == ({os.getpid(): GIB}, {program.pid: size})
    assert found.used == 2 * GIB + min(kept, 2 * GIB)


@pytest.mark.parametrize(("unseen", "held"), [(0, 4 * GIB), (GIB, 3 * GIB), (3 * GIB, GIB)])
def test_who_maps_memory_that_may_lie_on_the_host_is_not_charged_with_that_of_dead_ones(unseen: int, held: int) -> None:
    """Of a card 4 GiB are in use, 1 of them by a program that maps 3 more."""
    pid = os.getpid()
    mapped = {pid: Mapped(3 * GIB, start_time(pid), frozenset({"gpu"}))}

    async def read(_candidates: Callable[[], object]) -> Mapping[int, Mapped]:
        return mapped

    async def ask(*_: object) -> Mapping[int, int]:
        raise DeviceError("it does not tell who imported memory")

    executor, sessions = cast("Any", SimpleNamespace(ask=ask)), cast("Any", SimpleNamespace(by_number={}))
    ownerless = cast("Any", OwnerlessMemory(executor, sessions, lambda _: (), {"gpu": 0}, lambda _: unseen))
    ownerless._search = ownerless._reading = SimpleNamespace(read=read)
    sample = MemorySample("gpu", 16 * GIB, 4 * GIB + UNCOUNTED, {pid: GIB}, starts={pid: start_time(pid)})
    index = SimpleNamespace(volume_of=lambda _: "b")
    [completed] = asyncio.run(ownerless.complete([sample], lambda: cast("Any", index)))
    assert completed.held == {pid: held}
