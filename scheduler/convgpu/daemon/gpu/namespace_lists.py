"""What the driver tells within PID namespaces, asked by a program of ours (`namespace_program`)."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Final

import msgspec

# Seconds for all answers, and for those to searches.
PATIENCE: Final = 3.0
PATIENCE_OF_SEARCH: Final = 8.0
# What is wrong where a namespace's first process has ended, and with it all others: nobody's fault.
OVER: Final = "it has ended"
# Descriptors in one message; unix(7) allows 253.
MOST_NAMESPACES: Final = 64
_HEADER: Final = 4

# The real, effective and saved IDs of who asks; no user has them.
NO_IDS: Final = (2**31 - 2, 2**31 - 3, 2**31 - 4)

# Bytes by device and pid.
Lists = Mapping[str, Mapping[int, int]]


class NamespaceQuestion(msgspec.Struct, frozen=True):
    """Processes of one PID namespace.

    Attributes:
        namespace: descriptor.
        inner: the pids that they have there; nobody: who asks only stays there, if it is there. Those come last.
        outer: the pids that they have for who asks, and maybe others, too.
        search: all pids below are asked about, too, or as many as there is time for.
        first: of those, the one that is asked about first. After the last one comes pid 0.
    """

    namespace: int
    inner: Sequence[int]
    outer: Sequence[int]
    search: int = 0
    first: int = 0


class NamespaceAnswer(msgspec.Struct, frozen=True):
    """What processes of one PID namespace hold.

    Attributes:
        most: by the inner pids and those that were found, of several figures the largest; who is missing holds nothing.
            Of a device that is missing, nobody knows; None: of none.
        least: what all hold together who have the outer pids, of several figures from before till after the smallest.
        is_disturbed: whoever asked was ended or stopped there each time.
        trouble: why nobody knows.
        has_come: who asks has only come there; nothing is told yet.
        searched: so many pids were searched.
    """

    most: Lists | None = None
    least: Lists = {}
    is_disturbed: bool = False
    trouble: str = ""
    has_come: bool = False
    searched: int = 0


_ANSWERS: Final = msgspec.json.Decoder(list[NamespaceAnswer])


class NamespaceAsker:
    """Asks by a program that is there from the first question until nobody is asked about.

    Args:
        library: NVML's path, or its name for the loader.
    """

    def __init__(self, library: str) -> None:
        self._library = library
        self._program: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._complaints: IO[bytes] | None = None

    def ask(self, questions: Sequence[NamespaceQuestion], patience: float = PATIENCE) -> list[NamespaceAnswer]:
        """Return what the driver tells within PID namespaces, but our own and those above it.

        The first time this takes some 0.3 s. Of the last ones nothing is returned if the others took too long.

        Args:
            questions: one for each namespace; without any, who asks is ended.
            patience: seconds.

        Raises:
            OSError: nobody can be asked.
        """
        if not questions:
            self.close()
            return []
        channel = self._channel or self._start()
        try:
            channel.settimeout(patience)
            send(channel, msgspec.json.encode(questions), [one.namespace for one in questions])
            told, _ = receive(channel)
            return _ANSWERS.decode(told)
        except TimeoutError as error:
            self.close(0.0)
            raise OSError(f"no answer within {patience:g} s") from error
        except (OSError, msgspec.DecodeError) as error:
            raise OSError(self._why() or str(error)) from error

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does
                command = [sys.executable, "-m", "convgpu.daemon.gpu.namespace_program", self._library]
                said = self._complaints.fileno()
                self._program = subprocess.Popen(command, stdin=theirs.fileno(), stdout=said, stderr=said)
            except OSError:
                ours.close()
                self.close()
                raise
        self._channel = ours
        return ours

    def _why(self) -> str:
        """End the program; return the last that it said, and how it ended."""
        complaints = self._complaints
        if self._program is None or complaints is None:
            return ""
        try:
            status = self._program.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = -1
        complaints.seek(0)
        last = complaints.read().decode(errors="replace").strip().rpartition("\n")[2]
        self.close()
        return f"status {status}: {last}"

    def close(self, patience: float = PATIENCE) -> None:
        """End who asks, at once after some seconds; who hangs in the driver ends when that returns."""
        if self._channel is not None:
            self._channel.close()
        if self._program is not None:
            try:
                self._program.wait(patience)
            except subprocess.TimeoutExpired:
                self._program.kill()
        if self._complaints is not None:
            self._complaints.close()
        self._program = self._channel = self._complaints = None


def send(channel: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message with descriptors.

    Raises:
        OSError: the other side has ended, or takes nothing.
    """
    socket.send_fds(channel, [len(data).to_bytes(_HEADER)], descriptors)
    channel.sendall(data)


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Return a message and its descriptors.

    Raises:
        OSError: the other side has ended (ConnectionError), or sends nothing.
    """
    header, descriptors, _, _ = socket.recv_fds(channel, _HEADER, MOST_NAMESPACES)
    size, data = int.from_bytes(header), bytearray()
    while header and len(data) < size:
        part = channel.recv(min(size - len(data), 1 << 16))
        if not part:
            break
        data += part
    if not header or len(data) < size:
        for one in descriptors:
            os.close(one)
        raise ConnectionError("the other side has ended")
    return bytes(data), descriptors
