"""A porter goes on, or ends, where it would have to wait for somebody who may never come."""

import contextlib
import fcntl
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest
from built import build_driver, build_porter
from gpu_host import GIB, GpuHost
from porter_host import MIB, Owner, Porter

from convgpu.protocol.residency.porter import Pooled


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[int]:
    """The end to read from of a full pipe, which is there as `porter.log`."""
    pipe = tmp_path / "porter.log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # the porter's own descriptor waits where this one does not
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    yield reader
    os.close(reader)
    os.close(writer)


def test_a_log_that_nobody_reads_holds_nobody_up(
    program: Path, host: GpuHost, owner: Owner, tmp_path: Path, unread: int
) -> None:
    porter = Porter(program, host, tmp_path / "pool", tmp_path / "porter.log")
    try:
        for _ in range(3):
            porter.control.send(b"\x01")
        porter.resize(128 * MIB)
        porter.carrier(owner.pid)
        porter.expect(Pooled, size=128 * MIB)
        with contextlib.suppress(BlockingIOError):
            while os.read(unread, 1 << 16):
                pass
        porter.control.send(b"\x01")
        assert select.select([unread], [], [], 120)[0], "no line was written"
        refusal = b"a control frame of kind 0 and 1 bytes is not understood"
        assert os.read(unread, 1 << 16) == refusal + b" (3 lines before this one are lost: nobody read the log)\n"
    finally:
        porter.close()


def test_it_ends_if_another_porter_keeps_the_pool(tmp_path: Path) -> None:
    """It takes ten seconds, so it is played by one build."""
    build_driver()
    pool = tmp_path / "pool"
    with GpuHost(tmp_path, [GIB]) as host, pool.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        porter = Porter(build_porter(), host, pool, tmp_path / "porter.log")
        try:
            porter.resize(128 * MIB)
            assert porter.popen.wait(timeout=120) == 1
            told, ended = porter.log.read_text().splitlines()
            assert told.startswith(f"another porter has the pool {pool}; ")
            assert ended == f"the pool {pool} cannot be opened: Device or resource busy"
        finally:
            porter.close()
