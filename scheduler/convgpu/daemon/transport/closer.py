"""Descriptors that nobody asked for, on sockets that containers reach: refused, or dropped in a thread (decision 167).

A process hands over a file by SCM_RIGHTS and closes its own. Whoever drops it then does the last close, and that may
wait for as long as the process likes: a TCP socket with SO_LINGER for hours. Nothing hands descriptors to the scheduler
(docs/protocol.md), so from Linux 6.16 on the kernel refuses them. Before, they come; then no message is received that
has some, and sockets in whose queues some may be are closed by a thread.
"""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

_SO_PASSRIGHTS: Final = 83  # include/uapi/asm-generic/socket.h, from Linux 6.16 on
_MOST_WAITING: Final = 64  # sockets of one container
_PATIENCE: Final = 0.05  # seconds of one close
_RETRY: Final = 0.5  # seconds, where no thread can be started
# Ignored by who does not handle it. A wait for the peer of a socket ends with any signal that is handled.
_INTERRUPT: Final = signal.SIGURG


def handle_interrupts() -> None:
    """Let closes be interrupted. For the main thread, once."""
    signal.signal(_INTERRUPT, lambda *_: None)


def refuse_descriptors(listening: socket.socket) -> None:
    """Have the kernel refuse descriptors that are sent to a socket's connections, if it can: EPERM for the sender."""
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def _may_have_descriptors(sock: socket.socket) -> bool:
    """Whether descriptors can lie in the queue of a socket, or in those of connections that wait in it."""
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS) != 0
    except OSError:
        return True


def receiver(sock: socket.socket) -> Callable[[int], bytes]:
    """Return what receives up to so many bytes of a connection, and drops no descriptors.

    It raises PermissionError where some come next, which then stay in the queue, and OSError as `recv` does.
    """
    if not _may_have_descriptors(sock):
        return sock.recv
    # Otherwise an out-of-band byte is passed over, and dropped with its descriptors as what is behind it is received.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    return partial(_receive_without, sock)


def _receive_without(sock: socket.socket, size: int) -> bytes:
    # The kernel says MSG_CTRUNC where descriptors lie there. What it gives up then are not the last references.
    data, _, flags, _ = sock.recvmsg(size, 0, socket.MSG_PEEK)
    if flags & socket.MSG_CTRUNC:
        raise PermissionError("it sent descriptors, which nobody asked for")
    return sock.recv(len(data)) if data else data


class Closer:
    """Closes sockets that a container has reached, in a thread that lives while there is something to close.

    Args:
        on_room: called when `is_full` is false again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_room: Callable[[], None]) -> None:
        self._loop = loop
        self._on_room = on_room
        self._waiting: list[int] = []
        self._lock = threading.Lock()
        self._thread: int | None = None  # its number while it closes; under the lock
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Whether so many sockets wait that the container should not be served before they are closed."""
        return len(self._waiting) >= _MOST_WAITING

    def take(self, sock: socket.socket) -> None:
        """Close a socket: at once if that cannot wait. Its peer sees the end at once in any case."""
        if not _may_have_descriptors(sock):
            sock.close()
            return
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)  # nothing comes into its queue any more
        self._waiting.append(sock.detach())
        if self._timer is None:
            self._start()

    def _start(self) -> None:
        batch = self._waiting
        try:
            threading.Thread(target=self._close, args=(batch,), daemon=True).start()
        except RuntimeError:  # no thread is left: they stay open meanwhile
            self._timer = self._loop.call_later(_RETRY, self._start)
            return
        was_full, self._waiting = self.is_full, []
        self._timer = self._loop.call_later(_PATIENCE, self._interrupt)
        if was_full:
            self._on_room()

    def _close(self, batch: list[int]) -> None:
        with self._lock:
            self._thread = threading.get_ident()
        for descriptor in batch:
            os.close(descriptor)
        with self._lock:
            self._thread = None
        with contextlib.suppress(RuntimeError):  # the loop is closed: this process ends
            self._loop.call_soon_threadsafe(self._closed)

    def _interrupt(self) -> None:
        """Interrupt the close at hand. One signal ends the waits for all descriptors that lie in one socket."""
        with self._lock:
            if self._thread is not None:
                signal.pthread_kill(self._thread, _INTERRUPT)
        self._timer = self._loop.call_later(_PATIENCE, self._interrupt)

    def _closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._waiting:
            self._start()
