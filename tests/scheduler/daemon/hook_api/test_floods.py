"""Clients that send nonsense, too much, or nothing: what they cost is bounded, and nobody else notices."""

import contextlib
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fuzz_frames
import pytest
from daemon import GIB, Daemon, Process, connect, running_daemon, wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rounds import rounds

from convgpu.protocol import messages as m
from convgpu.protocol import wire
from convgpu.protocol.inspection import messages as i
from convgpu.protocol.messages import Message, pack
from convgpu.protocol.residency import messages as r

MIB = 1 << 20
CONNECTIONS = 10_000
HALF_A_FRAME = struct.pack("=IHHQ", 4096, wire.VERSION, wire.Kind.HELLO, 1) + bytes(4000)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path, Process]]:
    """A scheduler, the folder of a container that attacks it, and a process of another one."""
    with running_daemon(tmp_path_factory.mktemp("busy") / "d") as daemon:
        neighbour = Process(daemon.container("neighbour", memory="2g"))
        neighbour.hello()
        yield daemon, daemon.container("attacker", memory="2g"), neighbour


def resident(daemon: Daemon) -> int:
    assert daemon.process is not None
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def read_all(connection: socket.socket) -> None:
    """Until the scheduler closes the connection, or has nothing more to say."""
    connection.settimeout(0.02)
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass
    connection.close()


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=4))
@settings(max_examples=rounds(60, few=30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_harm_nobody(busy: tuple[Daemon, Path, Process], noise: list[bytes]) -> None:
    daemon, folder, neighbour = busy
    connection = connect(folder)
    with contextlib.suppress(OSError):
        for piece in noise:
            connection.sendall(piece)
    read_all(connection)
    assert neighbour.ask(m.Query(0)) == m.Usage(2 * GIB, 0, 0)
    assert "Traceback" not in daemon.log.read_text()


UUID = bytes(range(16))
FRAMES: list[Message] = [
    m.Hello(1, "x", "1g"),
    m.Hello(os.getpid(), "x", "", ((UUID, 1 << 62), (UUID, 5))),
    m.Hello(0xFFFFFFFF, "x" * 40, "-1", ((b"\xff" * 16, 0),)),
    m.Allocate(0, 0, "cuMemAlloc"),
    m.Allocate(0, 1, ""),
    m.Allocate(0, (1 << 64) - 1, "x"),
    m.Allocate(0xFFFFFFFF, 1, "x"),
    m.Allocate(0, 2 * GIB, "x"),
    m.Freed(0),
    m.Freed(77),
    m.Context(0, (1 << 64) - 1, (1 << 64) - 1),
    m.Query(0),
    m.Query(0xFFFFFFFF),
    m.Observe(UUID, "1g"),
    m.Welcome(4096, ()),
    m.Accepted(1 << 60, 0),
    m.Usage(1, 2, 3),
    m.Failed(1, "no"),
    m.Admin(b'{"op": "remove", "name": "neighbour"}'),
    m.AdminReply(b"{}"),
    i.Withdraw(),
    i.Exported(7, GIB, 0, 0, 1, 2),  # descriptor 0 is no epoll instance
    i.Exported(7, (1 << 64) - 1, 0, i.EXPECTED, 0, 0),
    i.Exported(7, 0, 0, i.ALL, 0, 0),
    i.Exported(7, 1, 77, 0xFFFF, 1, 2),
    i.Listed(1, 1 << 63, 1 << 63, (i.ListedRow(0, 1 << 63, 77, 0, "x"),)),
    i.Traced(77, 1 << 63, "x"),
    r.Able(77, 0xFFFFFFFF),
    r.Able(wire.Mover.VMM, wire.AbleFlag.IDLE),
    r.Run(1),
    r.Stopped(1, 77),
    r.Evicted(1, 0, 1 << 63),
    r.Restored(1, 77, 1),
    r.State(1, 1, (r.StateRow(UUID, 1 << 63, 1, 1),)),
    r.Idle(1, 1 << 63),
    *fuzz_frames.FRAMES,  # each kind that there is
]


@given(st.booleans(), st.lists(st.sampled_from(FRAMES), min_size=1, max_size=8))
@settings(max_examples=rounds(160, few=80), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_valid_frames_in_any_order_harm_nobody(
    busy: tuple[Daemon, Path, Process], greets: bool, frames: list[Message]
) -> None:
    """Without a session nearly all are refused unread, so half begin with one."""
    daemon, folder, neighbour = busy
    if greets:
        frames = [m.Hello(os.getpid(), "x", ""), *frames]
    connection = connect(folder)
    with contextlib.suppress(OSError):
        connection.sendall(b"".join(pack(frame, number) for number, frame in enumerate(frames)))
    read_all(connection)
    assert neighbour.ask(m.Query(0)) == m.Usage(2 * GIB, 0, 0)
    [device] = daemon.admin.request("devices")["devices"]
    assert 0 <= device["used"] <= device["granted"] <= device["capacity"]
    assert "Traceback" not in daemon.log.read_text()


def test_nobody_is_who_he_says_he_is(busy: tuple[Daemon, Path, Process]) -> None:
    daemon, _, neighbour = busy
    attacker = Process(daemon.container("liar", memory="2g"))
    attacker.socket.sendall(pack(m.Hello(neighbour.pid, "neighbour", "", ((UUID, 1 << 40),)), 1))
    wait_until(lambda: bool(daemon.state("liar")["sessions"]), "it has a session")
    [session] = daemon.state("liar")["sessions"]
    assert (session["pid"], session["devices"][0]["usage"]) == (attacker.pid, 0)
    [session] = daemon.state("neighbour")["sessions"]
    assert session["pid"] == neighbour.pid
    attacker.end()


def test_an_administrator_that_does_not_read_is_cut_off(busy: tuple[Daemon, Path, Process]) -> None:
    daemon, _, _ = busy
    before = resident(daemon)
    with socket.socket(socket.AF_UNIX) as deaf:
        folder = os.open(daemon.directory, os.O_PATH)
        deaf.connect(f"/proc/self/fd/{folder}/admin.sock")
        os.close(folder)
        question = pack(m.Admin(b'{"op": "containers"}'), 1)
        with pytest.raises(OSError, match=r"reset|pipe"):
            deaf.sendall(question * 1_000_000)
    assert resident(daemon) - before < 64 * MIB
    assert daemon.admin.request("devices")


def test_ten_thousand_connections_at_once_stop_nobody(tmp_path: Path) -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        pytest.skip(f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with running_daemon(tmp_path / "d") as daemon:
        folders = [daemon.container(f"c{number}", memory="1g") for number in range(11)]
        before = resident(daemon)
        silent = [connect(folders[number % 10]) for number in range(CONNECTIONS)]
        for connection in silent:
            connection.setblocking(False)
            with contextlib.suppress(OSError):  # all together are bounded
                connection.send(HALF_A_FRAME)
        begun = time.monotonic()
        process = Process(folders[-1])
        process.hello()
        assert process.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        assert time.monotonic() - begun < 5
        assert resident(daemon) - before < 64 * MIB
        for connection in silent:  # as many more on one container: refused beyond a bound
            connection.close()
        wait_until(lambda: bool(Process(folders[0]).hello().devices), "the next ones are served")
        crowd = [connect(folders[1]) for _ in range(CONNECTIONS // 4)]
        wait_until(lambda: "1024 others have not said HELLO" in daemon.log.read_text(), "there is a bound")
        assert daemon.log.read_text().count("others have not said HELLO") < 100
        for connection in crowd:
            connection.close()


def test_a_container_whose_processes_are_not_visible_has_no_more_sessions_either(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a pid namespace needs root")
    with running_daemon(tmp_path / "d") as daemon:
        folder = daemon.container("a", memory="1g")
        daemon.kill()
        daemon.wrapper = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        daemon.start()
        hello = pack(m.Hello(1, "x", ""), 1)
        with contextlib.ExitStack() as kept:
            for _ in range(1024):
                connection = kept.enter_context(connect(folder))
                connection.sendall(hello)
                assert connection.recv(4096)
            assert daemon.state("a")["sessions"][0]["pid"] == 0
            one_more = kept.enter_context(connect(folder))
            one_more.sendall(hello)
            assert b"more than 1024 processes" in one_more.recv(4096)


def test_who_asks_without_end_who_uses_memory_holds_nobody_up(daemon: Daemon) -> None:
    neighbour = Process(daemon.container("neighbour", memory="2g"))
    neighbour.hello()
    folder = daemon.container("crowd", memory="2g")
    crowd: list[Process] = []
    for _ in range(100):
        crowd.append(process := Process(folder))
        # HELLO at once: on a busy machine 100 starts take longer than a connection may be silent.
        [row] = process.hello().devices
        process.ask(m.Allocate(0, 4096, "cuMemAlloc"))
    flooder = crowd[0].socket
    flood = pack(m.Observe(row.uuid, ""), 1) * 2000

    def send() -> None:
        with contextlib.suppress(OSError):  # who does not read is cut off in the end
            flooder.sendall(flood)

    def receive() -> None:
        with contextlib.suppress(OSError):
            while flooder.recv(1 << 16):
                pass

    threads = [threading.Thread(target=work) for work in (send, receive)]
    for thread in threads:
        thread.start()
    waits = []
    while threads[0].is_alive() or len(waits) < 1000:
        begun = time.monotonic()
        neighbour.ask(m.Query(0))
        waits.append(time.monotonic() - begun)
    flooder.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    for process in crowd:
        process.end()
    assert max(waits) < 5, "the hook gives a scheduler up that is silent for so long"
