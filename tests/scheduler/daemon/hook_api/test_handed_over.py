"""Descriptors that a container sends to the scheduler stop nobody, whatever their last close waits for."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, connect, wait_until
from lingering import Lingering

from convgpu.protocol import messages as m
from convgpu.protocol.messages import pack

QUERY = pack(m.Query(0), 7)
SO_PASSRIGHTS = 83  # Linux 6.16
# Runs `python -m MODULE ...`, which follows, where no option is known that the kernel of 6.16 brought.
AS_ON_AN_OLDER_KERNEL = """
import runpy, sys
from convgpu.daemon.transport import closer
closer._SO_PASSRIGHTS = 9999
sys.argv = sys.argv[3:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
FAR_LESS = 60  # seconds; than an hour


@pytest.fixture
def lingering() -> Iterator[Lingering]:
    lingering = Lingering()
    yield lingering
    lingering.close()


@pytest.fixture(params=["this kernel", "an older one"])
def attacked(daemon: Daemon, request: pytest.FixtureRequest) -> tuple[Daemon, Process, Path]:
    """A scheduler, a neighbour's process, and the folder of the container that attacks."""
    if request.param == "an older one":
        daemon.stop()
        daemon.wrapper = [sys.executable, "-c", AS_ON_AN_OLDER_KERNEL]
        daemon.start()
    neighbour = Process(daemon.container("neighbour", memory="2g"))
    neighbour.hello()
    return daemon, neighbour, daemon.container("attacker", memory="2g")


def threads(daemon: Daemon) -> int:
    assert daemon.process is not None
    return sum(1 for _ in Path(f"/proc/{daemon.process.pid}/task").iterdir())


def end_of(connection: socket.socket) -> None:
    connection.settimeout(120)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass


def before_hello(_folder: Path, connection: socket.socket, lingering: Lingering) -> None:
    lingering.send(connection, bytes(16))


def with_a_frame(_folder: Path, connection: socket.socket, lingering: Lingering) -> None:
    connection.sendall(pack(m.Hello(os.getpid(), "x", ""), 1))
    connection.recv(65536)
    connection.sendall(QUERY)
    lingering.send(connection, QUERY)


def with_half_a_frame(_folder: Path, connection: socket.socket, lingering: Lingering) -> None:
    connection.sendall(QUERY[:10])
    lingering.send(connection, QUERY[10:12])


def out_of_band(_folder: Path, connection: socket.socket, lingering: Lingering) -> None:
    """The kernel passes such a byte over, and drops it with what it has when what is behind it is received."""
    connection.sendall(QUERY[:10])
    lingering.send(connection, QUERY[10:11], socket.MSG_OOB)
    connection.sendall(QUERY[11:12])


def behind_an_invalid_frame(_folder: Path, connection: socket.socket, lingering: Lingering) -> None:
    """The connection is closed while they lie in its queue."""
    connection.sendall(b"\xff" * 4096)
    lingering.send(connection, b"x")


def a_hundred(folder: Path, connection: socket.socket, lingering: Lingering) -> None:
    with contextlib.ExitStack() as kept:
        for _ in range(100):
            other = kept.enter_context(connect(folder))
            with contextlib.suppress(PermissionError):
                lingering.send_nested(other, b"x")
    lingering.send(connection, b"x")


@pytest.mark.parametrize(
    "attack", [before_hello, with_a_frame, with_half_a_frame, out_of_band, behind_an_invalid_frame, a_hundred]
)
def test_what_a_container_hands_over_stops_nobody(attacked, lingering, attack) -> None:
    daemon, neighbour, folder = attacked
    usual = threads(daemon)
    begun = time.monotonic()
    with connect(folder) as connection:
        try:
            attack(folder, connection, lingering)
        except (PermissionError, BrokenPipeError):
            pass
        else:
            end_of(connection)
    assert neighbour.ask(m.Query(0)) == m.Usage(2 * GIB, 0, 0)
    assert daemon.state("attacker")["name"] == "attacker"
    assert time.monotonic() - begun < FAR_LESS
    wait_until(lambda: threads(daemon) <= usual, "nothing is left to close")
    honest = Process(folder)
    honest.hello()
    assert honest.ask(m.Query(0)) == m.Usage(2 * GIB, 0, 0)
    assert "Traceback" not in daemon.log.read_text()


def test_who_sends_descriptors_is_told_so_or_loses_the_connection(attacked, lingering) -> None:
    daemon, _, folder = attacked
    with connect(folder) as connection:
        try:
            connection.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS)
            is_known = not daemon.wrapper
        except OSError:
            is_known = False
        if is_known:
            with pytest.raises(PermissionError):
                lingering.send(connection, b"x")
            return
        lingering.send(connection, b"x")
        end_of(connection)
    wait_until(lambda: "it sent descriptors, which nobody asked for" in daemon.log.read_text(), "it is logged")
