"""One connection on a UNIX stream socket: bytes to messages and back, within an asyncio loop.

asyncio's own streams cannot pass descriptors, so the socket is driven by add_reader and add_writer.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convgpu.daemon.system.atomic_files import put_in_place
from convgpu.daemon.system.procfs import open_peer
from convgpu.protocol import wire
from convgpu.protocol.messages import Failed, Message, pack
from convgpu.protocol.stream import MessageStream, ProtocolError

log = logging.getLogger(__name__)

_READ_SIZE: Final = 1 << 16
_UCRED: Final = struct.Struct("=iII")
# Bytes. Answers are small: a process with this many unread bytes does not read at all.
_MAX_UNSENT: Final = 1 << 20
_ACCEPT_PAUSE: Final = 0.5


class Connection:
    """Gives each message to `on_message(connection, id, message)`, and calls `on_end` once when the connection ends.

    Invalid input ends only this connection. `on_message` may raise ProtocolError, with which the connection fails.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_message: "Callable[[Connection, int, Message], None]",
        on_end: "Callable[[Connection], None]",
        max_frame: int = wire.MAX_FRAME,
    ) -> None:
        sock.setblocking(False)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        # Translated to our pid namespace; 0 when it is not visible there.
        self.pid: int = _UCRED.unpack(credentials)[0]
        self._loop = loop
        self._sock = sock
        self._on_message = on_message
        self._on_end = on_end
        self._stream = MessageStream(max_frame)
        self._unsent = bytearray()
        self._limit = _MAX_UNSENT
        self._read_size = min(_READ_SIZE, max_frame)  # bounds the time that other connections wait
        self.closed = False
        loop.add_reader(sock, self._readable)

    def open_process(self) -> int | None:
        """Return a pidfd of the peer, None if ended or not visible. Raises OSError: no descriptors are left."""
        return open_peer(self._sock, self.pid)

    def send(self, message: Message, request: int = 0, descriptor: int | None = None) -> None:
        """Send a frame; a descriptor can go only with the first frame of a connection."""
        if self.closed:
            return
        frame = pack(message, request)
        self._limit = max(_MAX_UNSENT, len(frame))
        try:
            if descriptor is not None:
                sent = socket.send_fds(self._sock, [frame], [descriptor])
            else:
                sent = 0 if self._unsent else self._sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(str(error))
            return
        if sent < len(frame):
            self._buffer(frame[sent:])

    def _buffer(self, rest: bytes) -> None:
        if not self._unsent:
            self._loop.add_writer(self._sock, self._writable)
        self._unsent += rest
        if len(self._unsent) > 2 * self._limit:
            self.close("it does not read its answers")

    def fail(self, error: ProtocolError) -> None:
        """Send the error to the peer, and close."""
        self.send(Failed(int(error.failure), str(error)), error.request)
        self.close(str(error))

    def close(self, why: str = "") -> None:
        """Close, and call `on_end` before this returns. Closing again does nothing."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        if why:
            log.warning("connection of pid %d closed: %s", self.pid, why)
        self._on_end(self)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(self._read_size)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(str(error))
            return
        if not data:
            self.close()
            return
        try:
            for request, message in self._stream.receive(data):
                if not self.closed:
                    self._on_message(self, request, message)
        except ProtocolError as error:
            self.fail(error)
        except Exception as error:  # our own fault must not end other connections
            log.exception("a message of pid %d could not be handled", self.pid)
            self.close(str(error))

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(str(error))
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._sock)


class Absent:
    """Stands for the connection of a process without one. Messages are dropped: the process will ask again."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def send(self, message: Message, request: int = 0, descriptor: int | None = None) -> None:
        """See Connection."""

    def close(self, why: str = "") -> None:
        """See Connection."""


class Listener:
    """A listening UNIX socket at a path of any length.

    Args:
        mode: of the socket's file.
        staging: a folder beside it in which to make the socket.
        on_accept: gets each accepted socket.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: Path,
        mode: int,
        staging: Path,
        on_accept: Callable[[socket.socket], None],
    ) -> None:
        self._loop = loop
        self._on_accept = on_accept
        self._pause: asyncio.TimerHandle | None = None
        self._path = path
        self._sock = bind_unix(path, mode, staging)
        self._file = _identify(path)
        self._sock.listen(128)
        loop.add_reader(self._sock, self._acceptable)

    def _acceptable(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except BlockingIOError:
            return
        except OSError as error:  # EMFILE and the like: open connections go on, new ones wait in the queue
            log.error("no connection is accepted for %g s: %s", _ACCEPT_PAUSE, error)
            self._loop.remove_reader(self._sock)
            self._pause = self._loop.call_later(_ACCEPT_PAUSE, self._loop.add_reader, self._sock, self._acceptable)
            return
        self._on_accept(sock)

    def is_in_place(self) -> bool:
        """Say whether the path still leads to this socket."""
        return _identify(self._path) == self._file

    def close(self) -> None:
        """Stop listening. The file stays; the next listener at the path replaces it."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def bind_unix(path: Path, mode: int, staging: Path) -> socket.socket:
    """Return a non-blocking UNIX socket at `path`; an existing file is replaced.

    It is made in `staging`, which no container can write, and renamed, so that no symbolic link can redirect it.
    sun_path holds 107 bytes, so the folder is named through its descriptor.

    Raises:
        OSError: it cannot be bound.
    """
    descriptor = os.open(staging, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        fresh = Path(f"/proc/self/fd/{descriptor}/{path.name}")
        fresh.unlink(missing_ok=True)
        sock.bind(str(fresh))
        fresh.chmod(mode)
        put_in_place(fresh, path)
    except OSError:
        sock.close()
        raise
    finally:
        os.close(descriptor)
    return sock
