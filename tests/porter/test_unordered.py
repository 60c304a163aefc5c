"""A process of a real scheduler hands memory over to its porter, and nobody has ordered it to."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from built import build_driver, build_porter
from daemon import GIB, Daemon, Process, elastic_process, running_daemon, wait_until
from gpu_host import CudaProcess
from porter_host import FAILED, NO_ROOM, OUT, PIECE, Carrier, Owner

from convgpu.protocol.residency import messages as r
from convgpu.protocol.stream import MessageStream


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    build_driver()
    build_porter()
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--oversubscribe=2.0", "--host-memory=2g") as daemon:
        yield daemon


def carrier_of(process: Process) -> Carrier:
    stream = MessageStream()
    while True:
        data, descriptors, _flags, _address = socket.recv_fds(process.socket, 65536, 1)
        if any(isinstance(message, r.Carrier) for _, message in stream.receive(data)):
            return Carrier(socket.socket(fileno=descriptors[0]), 0)


def pool(daemon: Daemon) -> int:
    return daemon.admin.request("devices")["devices"][0]["pool"]  # type: ignore[index] # as JSON has it


def test_one_piece_under_many_names_does_not_fill_the_host_memory_of_all(daemon: Daemon) -> None:
    """Its limit was as much as the pool, of which nobody else had anything then: limits add up to more than it."""
    attacker, _ = elastic_process(daemon, "attacker", "13g")
    carrier = carrier_of(attacker)
    wait_until(lambda: pool(daemon) == 2 * GIB, "the host gave its part")
    driver = daemon.directory / "driver"
    owner = Owner(cast("Any", SimpleNamespace(process=lambda: CudaProcess(driver, {}, []))))
    address = owner.piece(b"the same")
    for name in range(8):
        descriptor = owner.export(address)
        carrier.send(OUT, name, PIECE, descriptor=descriptor)
        os.close(descriptor)
    assert {carrier.receive() for _ in range(8)} == {(FAILED, name, NO_ROOM) for name in range(8)}
    carrier.socket.close()
    owner.kill()
