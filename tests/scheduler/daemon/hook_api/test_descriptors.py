"""Descriptors are shared by all containers: who takes many of them takes none from who is connected."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, connect, running_daemon

from convgpu.daemon.containers.sockets import MAX_UNMOUNTED
from convgpu.protocol import messages as m
from convgpu.protocol.layout import LIBRARY_FILE
from convgpu.protocol.messages import pack

LIMIT = 400


@pytest.fixture
def scarce(daemon: Daemon) -> Iterator[Daemon]:
    """A scheduler with few descriptors."""
    daemon.kill()
    daemon.wrapper = ["prlimit", f"--nofile={LIMIT}:{LIMIT}"]
    daemon.start()
    yield daemon
    assert "Errno 24" not in daemon.log.read_text()


def descriptors(daemon: Daemon) -> int:
    assert daemon.process is not None
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


def answers(connection: socket.socket, frame: bytes) -> bool:
    """Whether the scheduler answers a frame; else it closes the connection."""
    try:
        connection.sendall(frame)
        return bool(connection.recv(4096))
    except ConnectionError:
        return False


def listens(folder: Path) -> bool:
    try:
        connect(folder).close()
    except ConnectionRefusedError:
        return False
    return True


def test_silent_connections_of_many_containers_leave_room_for_everybody(scarce: Daemon) -> None:
    honest = Process(scarce.container("honest", memory="2g"))
    honest.hello()
    folders = [scarce.container(f"c{number}", memory="1g") for number in range(8)]
    with contextlib.ExitStack() as kept:
        for _ in range(LIMIT // 4):
            for folder in folders:
                kept.enter_context(connect(folder))
        assert honest.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        newcomer = Process(scarce.container("newcomer", memory="2g"))
        assert newcomer.hello().devices
        assert newcomer.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        assert descriptors(scarce) < LIMIT // 2


def test_who_is_silent_is_closed_where_most_are(scarce: Daemon) -> None:
    one = connect(scarce.container("one", memory="1g"))
    crowd = scarce.container("crowd", memory="1g")
    with one, contextlib.ExitStack() as kept:
        connections = [kept.enter_context(connect(crowd)) for _ in range(LIMIT // 4)]
        assert connections[0].recv(1) == b""
        one.sendall(pack(m.Hello(os.getpid(), "x", ""), 1))
        assert one.recv(4096)


def test_sessions_without_end_stop_before_the_reserve(scarce: Daemon) -> None:
    if os.geteuid() != 0:
        pytest.skip("a pid namespace needs root")
    scarce.kill()
    # One process of this test can have many sessions only where its pid is not visible.
    scarce.wrapper += ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    scarce.start()
    honest = connect(scarce.container("honest", memory="2g"))
    folder = scarce.container("crowd", memory="1g")
    hello = pack(m.Hello(1, "x", ""), 1)
    with honest, contextlib.ExitStack() as kept:
        honest.sendall(hello)
        assert honest.recv(4096)
        welcomed = [answers(kept.enter_context(connect(folder)), hello) for _ in range(LIMIT)]
        assert (welcomed[0], welcomed[-1]) == (True, False)
        honest.sendall(pack(m.Query(0), 2))
        assert honest.recv(4096)
        scarce.admin.request("create", name="another", options={"memory": "1g", "gpus": "all"})
        assert scarce.events("created")[-1]["container"] == "another"


def test_the_kernels_table_of_descriptors_never_has_to_grow(scarce: Daemon) -> None:
    assert scarce.process is not None
    [row] = [row for row in Path(f"/proc/{scarce.process.pid}/status").read_text().splitlines() if row[:6] == "FDSize"]
    assert int(row.split()[1]) >= LIMIT


def test_volumes_that_nobody_mounts_keep_few_sockets_and_a_mount_opens_one(tmp_path: Path) -> None:
    names = [f"v{number}" for number in range(MAX_UNMOUNTED + 3)]
    with running_daemon(tmp_path / "d") as daemon:
        for name in names:
            daemon.admin.request("create", name=name, options={"memory": "1g", "gpus": "all"})
        folders = {name: Path(str(daemon.state(name)["mountpoint"])) for name in names}
        assert [name for name in names if not listens(folders[name])] == names[:3]
        daemon.admin.request("mount", name="v0", id="1")
        Process(folders["v0"]).hello()
        daemon.kill()
        daemon.start()
        assert listens(folders["v0"])
        assert sum(map(listens, folders.values())) == MAX_UNMOUNTED + 1


def test_a_start_looks_at_the_folders_of_the_newest_volumes_only_and_at_another_once_it_is_used(tmp_path: Path) -> None:
    """Each takes two milliseconds, and a user may have thousands of volumes."""
    names = [f"v{number}" for number in range(MAX_UNMOUNTED + 3)]
    with running_daemon(tmp_path / "d") as daemon:
        for name in names:
            daemon.admin.request("create", name=name, options={"memory": "1g", "gpus": "all"})
        daemon.admin.request("mount", name="v2", id="1")
        libraries = [Path(str(daemon.state(name)["mountpoint"])) / LIBRARY_FILE for name in ("v0", "v1", "v2", "v3")]
        daemon.kill()
        for library in libraries:
            library.write_text("changed")
        daemon.start()
        assert [library.read_bytes() == b"changed" for library in libraries] == [True, True, False, False]
        daemon.admin.request("mount", name="v0", id="2")
        seen = {"id": "c" * 64, "name": "c", "image": "x", "volumes": ["v1"], "state": "running", "labels": {}}
        daemon.admin.request("listed", asked=time.time() + 60, containers=[seen], volumes=names)
        for library in libraries[:3]:
            assert library.read_bytes() == libraries[3].read_bytes()
            Process(library.parent).hello()


def test_the_socket_of_a_volume_stays_after_its_last_unmount_until_others_need_the_room(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="1g")
    daemon.admin.request("unmount", name="a", id="1")
    assert listens(folder)
