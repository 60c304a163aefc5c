"""One connection on a UNIX stream socket: bytes to messages and back, within an asyncio loop.

asyncio's own streams cannot pass descriptors, so the socket is driven by the share of its container.
"""

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from convgpu.daemon.system.atomic_files import put_in_place
from convgpu.daemon.system.procfs import KernelFacts, has_ended, look_at, open_peer
from convgpu.daemon.transport.closer import receiver, refuse_descriptors
from convgpu.daemon.transport.shares import Share
from convgpu.protocol import wire
from convgpu.protocol.messages import Allocate, Context, Failed, Message, Query, pack
from convgpu.protocol.stream import MessageStream, ProtocolError

log = logging.getLogger(__name__)

_READ_SIZE: Final = 1 << 16
_UCRED: Final = struct.Struct("=iII")
# Bytes. Answers are small: a process with this many unread bytes does not read at all.
_MAX_UNSENT: Final = 1 << 20
_ACCEPT_PAUSE: Final = 0.5
# Whose answers are all that they are for. A process that ended amid a flood of them leaves thousands in its socket.
_QUESTIONS: Final = (Allocate, Context, Query)


class Connection:
    """Gives each message to `on_message(connection, id, message)`, and calls `on_end` once when the connection ends.

    Invalid input ends only this connection. `on_message` may raise ProtocolError, with which the connection fails.
    Messages are handled in the turns of `share`; while some are left, no more bytes are read.
    """

    def __init__(
        self,
        share: Share,
        sock: socket.socket,
        on_message: "Callable[[Connection, int, Message], None]",
        on_end: "Callable[[Connection], None]",
        max_frame: int = wire.MAX_FRAME,
    ) -> None:
        sock.setblocking(False)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        # Translated to our pid namespace; 0 when it is not visible there.
        self.pid: int = _UCRED.unpack(credentials)[0]
        self._share = share
        self._sock = sock
        self._receive = receiver(sock)
        self._on_message = on_message
        self._on_end = on_end
        self._stream = MessageStream(max_frame)
        self._unsent = bytearray()
        self._limit = _MAX_UNSENT
        self._read_size = min(_READ_SIZE, max_frame)  # bounds the time that other connections wait
        self.closed = False
        self._is_deaf = False  # nobody reads what is sent
        self._is_held = False
        share.add_reader(sock.fileno(), self._readable)

    def open_process(self) -> int | None:
        """Return a pidfd of the peer, None if ended or not visible. Raises OSError: no descriptors are left."""
        return open_peer(self._sock, self.pid)

    def look(self) -> KernelFacts | None:
        """Return what the kernel tells of the peer, None if it has ended, or has closed; in another thread.

        A number can be another process's by now, so the process must live after it was looked at. Raises OSError.
        """
        try:
            process = None if self.closed else self.open_process()
        except OSError:
            if self.closed:  # meanwhile, and so is the socket
                return None
            raise
        if process is None:
            return None
        try:
            facts = look_at(self.pid)
            return None if has_ended(process) else facts
        finally:
            os.close(process)

    def send(self, message: Message, request: int = 0, descriptor: int | None = None) -> None:
        """Send a frame; a descriptor can go only with the first frame of a connection."""
        if self.closed or self._is_deaf:
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
            self._follow_failure(error)
            return
        if sent < len(frame):
            self._buffer(frame[sent:])

    def _buffer(self, rest: bytes) -> None:
        if not self._unsent:
            self._share.add_writer(self._sock.fileno(), self._writable)
        self._unsent += rest
        if len(self._unsent) > 2 * self._limit:
            self.close("it does not read its answers")

    def _follow_failure(self, error: OSError) -> None:
        """Send nothing more to who has ended, and close otherwise: what the peer said before its end is still read."""
        if error.errno not in {errno.EPIPE, errno.ECONNRESET}:
            self.close(str(error))
            return
        self._is_deaf = True
        self._unsent.clear()
        self._share.remove_writer(self._sock.fileno())

    def fail(self, error: ProtocolError) -> None:
        """Send the error to the peer, and close."""
        self.send(Failed(int(error.failure), str(error)), error.request)
        self.close(str(error))

    def close(self, why: str = "") -> None:
        """Close, and call `on_end` before this returns. Closing again does nothing."""
        if self.closed:
            return
        self.closed = True
        self._share.remove_reader(self._sock.fileno())
        self._share.remove_writer(self._sock.fileno())
        self._share.release(self._sock)
        if why:
            log.warning("connection of pid %d closed: %s", self.pid, why)
        self._on_end(self)

    def hold(self) -> None:
        """Handle and read no more after this message, until `go_on`."""
        self._is_held = True
        self._share.remove_reader(self._sock.fileno())

    def go_on(self, work: Callable[[], None] | None = None) -> None:
        """Do some work, which may raise as `on_message` may; handle what has come since `hold`, and read again."""
        if self._is_held and not self.closed:
            self._is_held = False
            self._share.call_soon(partial(self._handle_rest, work))

    def _readable(self) -> None:
        try:
            data = self._receive(self._read_size)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(str(error))
            return
        if not data:
            self.close()
            return
        self._stream.feed(data)
        self._handle()
        if self._stream and not self._share.has_time and not self.closed and not self._is_held:
            self._share.remove_reader(self._sock.fileno())
            self._share.call_soon(self._handle_rest)

    def _handle_rest(self, work: Callable[[], None] | None = None) -> None:
        if self.closed:
            return
        self._handle(work)
        if self.closed or self._is_held:
            return
        if self._stream and not self._share.has_time:
            self._share.call_soon(self._handle_rest)
        else:
            self._share.add_reader(self._sock.fileno(), self._readable)

    def _handle(self, work: Callable[[], None] | None = None) -> None:
        """Do some work if there is any; handle the messages that have come for as long as this share has time."""
        try:
            if work is not None:
                work()
                if self.closed or self._is_held or not self._share.has_time:
                    return
            while (received := self._stream.take()) is not None:
                if not (self._is_deaf and isinstance(received[1], _QUESTIONS)):
                    self._on_message(self, *received)
                if self.closed or self._is_held or not self._share.has_time:
                    return
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
            self._follow_failure(error)
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._share.remove_writer(self._sock.fileno())


class Absent:
    """Stands for the connection of a process without one. Messages are dropped: the process will ask again."""

    closed = True

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
        on_accept: gets each accepted socket, one in each turn of `share`.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(
        self,
        share: Share,
        path: Path,
        mode: int,
        staging: Path,
        on_accept: Callable[[socket.socket], None],
    ) -> None:
        self._share = share
        self._on_accept = on_accept
        self._pause: asyncio.TimerHandle | None = None
        self._path = path
        self._sock = bind_unix(path, mode, staging)
        refuse_descriptors(self._sock)
        self._file = _identify(path)
        self._sock.listen(128)
        share.add_reader(self._sock.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except BlockingIOError:
            return
        except OSError as error:  # EMFILE and the like: open connections go on, new ones wait in the queue
            log.error("no connection is accepted for %g s: %s", _ACCEPT_PAUSE, error)
            descriptor = self._sock.fileno()
            self._share.remove_reader(descriptor)
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(_ACCEPT_PAUSE, self._share.add_reader, descriptor, self._acceptable)
            return
        self._on_accept(sock)

    def is_in_place(self) -> bool:
        """Say whether the path still leads to this socket."""
        return _identify(self._path) == self._file

    def close(self) -> None:
        """Stop listening. The file stays; the next listener at the path replaces it."""
        if self._pause is not None:
            self._pause.cancel()
        self._share.remove_reader(self._sock.fileno())
        self._share.release(self._sock)


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bind(sock: socket.socket, fresh: Path, replaced: Path) -> None:
    """Bind; on a disk that is full in the place of the socket that `fresh` is about to replace, which nobody serves."""
    try:
        sock.bind(str(fresh))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        replaced.unlink()
        sock.bind(str(fresh))


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
        _bind(sock, fresh, path)
        fresh.chmod(mode)
        put_in_place(fresh, path)
    except OSError:
        sock.close()
        raise
    finally:
        os.close(descriptor)
    return sock
