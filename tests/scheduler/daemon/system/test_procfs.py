"""What the kernel tells about real processes."""

import errno
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import wait_until

from convgpu.daemon.system.procfs import is_alive, open_peer, open_process

# The first thread ends (pthread_exit) and another goes on until stdin ends.
_PROGRAM = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_for_as_long_as_any_of_its_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE) as process:
        status = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z", "its first thread ends")
        alive = is_alive(process.pid)
        process.kill()
        assert alive
        wait_until(lambda: not is_alive(process.pid), "it ends")


_CONNECTS = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
one, other = socket.socketpair()
socket.send_fds(channel, [b"x"], [one.fileno()])
sys.stdin.read()
"""


def test_the_peer_of_a_connection_is_who_made_it_and_no_other() -> None:
    """Its end is known though somebody else keeps the socket open and its pid may be used again."""
    channel, theirs = socket.socketpair()
    command = [sys.executable, "-S", "-E", "-c", _CONNECTS, str(theirs.fileno())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]) as process, channel, theirs:
        _, [descriptor], _, _ = socket.recv_fds(channel, 1, 1)
        with socket.socket(fileno=descriptor) as connection:
            alive = open_peer(connection, process.pid)
            assert alive is not None
            assert select.select([alive], [], [], 0)[0] == []
            process.kill()
            process.wait()
            assert select.select([alive], [], [], 10)[0] == [alive]
            os.close(alive)
            late = open_peer(connection, process.pid)
            if late is not None:
                assert select.select([late], [], [], 0)[0] == [late]
                os.close(late)
            assert open_peer(connection, 0) is None


def test_no_descriptor_says_nothing_about_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for gone, a process that lives would lose its memory with its connection."""

    def exhausted(_pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    assert open_process(1 << 22) is None
    monkeypatch.setattr(os, "pidfd_open", exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        open_process(os.getpid())
