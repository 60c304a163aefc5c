"""Descriptors whose last close waits for an hour, as a container hands them over that wants to stop somebody."""

import signal
import socket
import struct
from dataclasses import dataclass, field

HOUR = 3600


def _full() -> tuple[socket.socket, socket.socket]:
    """A TCP connection over the loopback that can take no more, and its other end, which does not read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        full = socket.create_connection(listener.getsockname())
        reader, _ = listener.accept()
    full.setblocking(False)
    try:
        while True:
            full.send(bytes(65536))
    except BlockingIOError:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, HOUR))
        return full, reader


def _close(handed: socket.socket) -> None:
    """Close, at once or, if it is the last one as who took it was quicker, after a signal."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    handed.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@dataclass
class Lingering:
    """Hands such descriptors over, and lives until the test has ended: then nothing lingers any more."""

    readers: list[socket.socket] = field(default_factory=list)

    def send(self, to: socket.socket, data: bytes, flags: int = 0) -> None:
        """Send data with one, of which nobody else has another reference."""
        full, reader = _full()
        self._hand_over(to, data, flags, full, reader)

    def send_nested(self, to: socket.socket, data: bytes) -> None:
        """Send data with a socket in whose queue one lies: there is nothing to set on what comes."""
        full, reader = _full()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(theirs, [b"x"], [full.fileno()])
        full.close()
        self._hand_over(to, data, 0, ours, reader)

    def _hand_over(
        self, to: socket.socket, data: bytes, flags: int, handed: socket.socket, reader: socket.socket
    ) -> None:
        self.readers.append(reader)
        try:
            socket.send_fds(to, [data], [handed.fileno()], flags)
        except OSError:
            reader.close()  # nobody took it: nothing is to linger
            raise
        finally:
            _close(handed)

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
