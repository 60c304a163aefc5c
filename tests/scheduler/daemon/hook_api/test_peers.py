"""A session belongs to the container in whose cgroup its process runs, or it is refused."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import Daemon

from convgpu.daemon.hook_api.peers import PeerCheck
from convgpu.daemon.system.mounts import Place
from convgpu.protocol import messages as m
from convgpu.protocol.messages import Message, pack
from convgpu.protocol.stream import MessageStream, ProtocolError
from convgpu.protocol.wire import Failure

MINE, OTHER, NEW, NESTED = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)
LISTED = {MINE: "mine", OTHER: "other"}


NOWHERE = Place(b"0:0", b"/nowhere")


def refused(ids: list[str], place: Place | None = NOWHERE) -> bool:
    """Say whether a process in these containers, which has nothing of ours mounted, is refused."""
    check = PeerCheck(lambda: LISTED, lambda _: place)
    try:
        check.check("mine", os.getpid(), ids, 7)
    except ProtocolError as error:
        return (error.failure, error.request) == (Failure.PEER, 7)
    return False


@pytest.mark.parametrize(
    ("ids", "is_refused"),
    [
        ([MINE], False),
        ([OTHER], True),
        ([NEW], True),
        ([], False),
        ([MINE, NESTED], False),
        ([MINE, OTHER], False),
        ([OTHER, MINE], True),
        ([NEW, MINE], False),
    ],
    ids=["ours", "another", "unlisted", "outside", "nested", "named below", "named above", "engine inside"],
)
def test_the_outermost_container_that_the_engine_listed_decides(ids: list[str], is_refused: bool) -> None:
    assert refused(ids) == is_refused


@pytest.mark.parametrize("ids", [[NEW], [OTHER]], ids=["not listed yet", "several volumes"])
def test_who_has_the_volume_itself_mounted_may_use_it(ids: list[str]) -> None:
    mounted = next(line.split()[2:4] for line in Path("/proc/self/mountinfo").read_bytes().splitlines())
    assert not refused(ids, Place(*mounted))
    assert refused(ids, Place(mounted[0], mounted[1] + b"/parent"))


def test_nobody_is_refused_whose_folder_this_host_cannot_find() -> None:
    assert not refused([NEW], place=None)


# Joins a cgroup, connects as a program does, says what it was told to say, and prints the answer.
_PROGRAM = """
import os, socket, sys
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
channel = socket.socket(socket.AF_UNIX)
channel.connect("scheduler.sock")
channel.sendall(bytes.fromhex(sys.argv[2]))
sys.stdout.buffer.write(channel.recv(65536))
"""


def ask(folder: Path, cgroup: Path, message: Message, wrapper: list[str] | None = None) -> Message:
    command = [sys.executable, "-S", "-E", "-c", _PROGRAM, str(cgroup / "cgroup.procs"), pack(message, 1).hex()]
    answer = subprocess.run(
        [*(wrapper or []), *command], cwd=folder, capture_output=True, check=True, timeout=30
    ).stdout
    return MessageStream().receive(answer)[0][1]


@pytest.mark.parametrize("message", [m.Hello(1, "thief", ""), m.Observe(bytes(16), "")], ids=["hello", "observe"])
def test_a_process_of_another_container_gets_nothing_from_a_socket(
    daemon: Daemon, cgroup: Path, message: Message
) -> None:
    folder = daemon.container("mine", memory="2g")
    answer = ask(folder, cgroup, message)
    assert isinstance(answer, m.Failed)
    assert answer.failure == Failure.PEER
    assert "another container" in answer.text
    assert daemon.state("mine")["sessions"] == []


def test_a_container_that_the_engine_listed_may_use_its_volume(daemon: Daemon, cgroup: Path) -> None:
    folder = daemon.container("mine", memory="2g")
    entry = {"id": cgroup.name, "name": "n", "image": "i", "state": "running", "volumes": ["mine"]}
    daemon.admin.request("listed", asked=1.0, containers=[entry], volumes=["mine"])
    assert isinstance(ask(folder, cgroup, m.Hello(1, "own", "")), m.Welcome)


def test_a_container_that_has_the_volume_mounted_may_use_it_before_it_is_listed(daemon: Daemon, cgroup: Path) -> None:
    folder = daemon.container("mine", memory="2g")
    bind = ["unshare", "--mount", "sh", "-c", 'mount --bind . . && cd "$PWD" && exec "$@"', "_"]
    assert isinstance(ask(folder, cgroup, m.Hello(1, "own", ""), bind), m.Welcome)


def test_a_process_that_ended_after_it_connected_gets_nothing(daemon: Daemon) -> None:
    folder = daemon.container("mine", memory="2g")
    ours, theirs = socket.socketpair()
    program = (
        "import socket, sys\n"
        "channel = socket.socket(socket.AF_UNIX)\n"
        "channel.connect('scheduler.sock')\n"
        "socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b'x'], [channel.fileno()])\n"
    )
    command = [sys.executable, "-S", "-E", "-c", program, str(theirs.fileno())]
    subprocess.run(command, cwd=folder, pass_fds=[theirs.fileno()], check=True, timeout=120)
    _data, [descriptor], _flags, _address = socket.recv_fds(ours, 1, 1)
    with socket.socket(fileno=descriptor) as channel:
        channel.sendall(pack(m.Hello(1, "heir", ""), 1))
        [(_, answer)] = MessageStream().receive(channel.recv(65536))
    ours.close()
    theirs.close()
    assert isinstance(answer, m.Failed)
    assert "has ended" in answer.text
