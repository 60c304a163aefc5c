"""What the scheduler tells those that have no session."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, connect

from convgpu.daemon.hook_api.nvml_view import pid_seen_by as seen_by
from convgpu.daemon.system.procfs import namespace_pids, pid_namespace
from convgpu.protocol import messages as m
from convgpu.protocol.messages import pack
from convgpu.protocol.stream import MessageStream
from convgpu.protocol.uuids import uuid_bytes
from convgpu.protocol.wire import Failure


def pid_seen_by(pid: int, asker: int) -> int | None:
    return seen_by(namespace_pids(pid), pid_namespace(pid), namespace_pids(asker), pid_namespace(asker))


def observe(folder: Path, device: bytes, memory: str = "") -> m.Message:
    with connect(folder) as connection:
        connection.sendall(pack(m.Observe(device, memory), 5))
        stream, answers = MessageStream(), []
        while not answers:
            data = connection.recv(65536)
            assert data
            answers = stream.receive(data)
    [(request, message)] = answers
    assert request == 5
    return message


@pytest.fixture
def device(daemon: Daemon) -> bytes:
    return uuid_bytes(daemon.admin.request("devices")["devices"][0]["uuid"])


def test_usage_and_processes(daemon: Daemon, device: bytes) -> None:
    folder = daemon.container("a", memory="4g")
    assert observe(folder, device) == m.Observed(4 * GIB, 0)
    user, idle, other = Process(folder), Process(folder), Process(daemon.container("b", memory="4g"))
    for process in (user, idle, other):
        process.hello()
    for process in (user, other):
        process.ask(m.Allocate(0, GIB, "cuMemAlloc"))
    assert observe(folder, device) == m.Observed(4 * GIB, GIB, (m.ProcessRow(user.pid, user.pid, GIB),))
    assert len(daemon.state("a")["sessions"]) == 2


def test_in_a_session_too(daemon: Daemon, device: bytes) -> None:
    process = Process(daemon.container("a", memory="4g"))
    process.hello()
    process.ask(m.Allocate(0, GIB, "cuMemAlloc"))
    assert process.ask(m.Observe(device, "")) == m.Observed(
        4 * GIB, GIB, (m.ProcessRow(process.pid, process.pid, GIB),)
    )


def test_a_device_that_the_container_does_not_have(daemon: Daemon) -> None:
    assert observe(daemon.container("a", memory="4g"), b"x" * 16) == m.Observed(0, 0)


def test_who_looks_first_can_bring_the_limit(daemon: Daemon, device: bytes) -> None:
    folder = daemon.container("a")
    refused = observe(folder, device)
    assert isinstance(refused, m.Failed)
    assert refused.failure == Failure.NO_LIMIT
    assert observe(folder, device, "3g") == m.Observed(3 * GIB, 0)
    assert observe(folder, device, "5g") == m.Observed(3 * GIB, 0)  # the first word counts


def test_pids_of_other_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("a pid namespace needs root")
    ours, theirs = socket.socketpair()
    own = os.getpid()

    def start(*prefix: str) -> tuple["subprocess.Popen[bytes]", int]:
        """Start cat in new pid namespaces; return what started it, and its pid here."""
        process = subprocess.Popen([*prefix, "sh", "-c", "echo >&0; exec cat"], stdin=theirs)
        ours.recv(1)
        pid = process.pid
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
        return process, pid

    namespace = ("unshare", "--pid", "--fork", "--kill-child")
    with ours, theirs:
        started = [start(*namespace), start(*namespace), start(*namespace, *namespace), start()]
        (_, one), (_, other), (_, nested), (_, plain) = started
        assert pid_seen_by(one, own) == one
        assert pid_seen_by(one, one) == 1
        assert pid_seen_by(one, other) is None
        assert pid_seen_by(plain, one) is None
        assert pid_seen_by(nested, own) == nested
        assert pid_seen_by(nested, nested) == 1
        assert pid_seen_by(plain, own) == plain
        for process, _pid in started:
            process.kill()
            process.wait()
    assert pid_seen_by(plain, own) is None
