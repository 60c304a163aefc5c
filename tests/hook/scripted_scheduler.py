"""A scheduler that does only what a test tells it to: it can refuse, hang up, answer late or answer nonsense."""

import ctypes
import mmap
import os
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from convgpu.protocol.messages import DeviceRow, Hello, Message, Welcome, pack
from convgpu.protocol.stream import MessageStream

TIMEOUT = 120.0
"""Seconds after which a test gives up; nothing takes that long."""

POLL = 0.0005
"""Seconds between two questions whether the program has said something."""

PAGE_SIZE = 4096
SLOT_SIZE = 64
FIXED_OFFSET = SLOT_SIZE + 24
"""Of `fixed` in the first slot."""


@dataclass
class Page:
    """The shared page as the daemon sees it, through libconvgpu-page.so."""

    library: ctypes.CDLL
    count: int
    flags: int = 0

    def __post_init__(self) -> None:
        self.descriptor = os.memfd_create("convgpu-page", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, PAGE_SIZE)
        self._memory = mmap.mmap(self.descriptor, PAGE_SIZE)
        self._address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._memory)))
        self.library.convgpu_page_take_all.restype = ctypes.c_uint64
        self.library.convgpu_page_read.restype = ctypes.c_uint64
        self.library.convgpu_page_init(self._address, ctypes.c_uint32(self.count), ctypes.c_uint32(self.flags))

    def give(self, row: int, size: int) -> None:
        self.library.convgpu_page_lease(self._address, ctypes.c_uint32(row), ctypes.c_uint64(size))

    def take_all(self, row: int) -> int:
        return int(self.library.convgpu_page_take_all(self._address, ctypes.c_uint32(row)))

    def read(self, row: int) -> int:
        return int(self.library.convgpu_page_read(self._address, ctypes.c_uint32(row)))

    def give_fixed(self, row: int, size: int) -> None:
        struct.pack_into("Q", self._memory, FIXED_OFFSET + SLOT_SIZE * row, self.read_fixed(row) + size)

    def read_fixed(self, row: int) -> int:
        return int(struct.unpack_from("Q", self._memory, FIXED_OFFSET + SLOT_SIZE * row)[0])

    def arm(self, row: int, armed: bool) -> None:
        self.library.convgpu_page_arm(self._address, ctypes.c_uint32(row), int(armed))

    def publish_limit(self, row: int, limit: int, *, alone: bool) -> None:
        library, arguments = self.library, (ctypes.c_uint32(row), ctypes.c_uint64(limit), int(alone))
        library.convgpu_page_publish(self._address, *arguments)

    def trace(self, row: int, calls: int | None) -> int:
        """Let the process report so many calls; return how many it only counted."""
        arguments = (ctypes.c_uint32(row), int(calls is not None), ctypes.c_uint32(calls or 0))
        return int(self.library.convgpu_page_trace(self._address, *arguments))


class Peer:
    """One process's connection."""

    def __init__(self, connection: socket.socket, library: ctypes.CDLL) -> None:
        self._connection = connection
        self._connection.settimeout(TIMEOUT)
        self._stream = MessageStream()
        self._received: list[tuple[int, Message]] = []
        self._library = library

    def receive(self) -> tuple[int, Message]:
        while not self._received:
            data = self._connection.recv(65536)
            if not data:
                raise EOFError
            self._received += self._stream.receive(data)
        return self._received.pop(0)

    def at_end(self) -> bool:
        """Whether the process's side of the connection is closed; waits for it."""
        try:
            self.receive()
        except (EOFError, ConnectionResetError):
            return True
        return False

    def silent(self, seconds: float = 0.0) -> bool:
        """Whether nothing is there to read now, and for so long (POLL: who asks again and again leaves the core)."""
        return not self._received and not select.select([self._connection], [], [], seconds)[0]

    def send(self, message: Message, request: int = 0) -> None:
        self.send_raw(pack(message, request))

    def send_raw(self, data: bytes) -> None:
        self._connection.sendall(data)

    def welcome(self, rows: tuple[DeviceRow, ...], flags: int = 0) -> Page:
        page = Page(self._library, len(rows), flags)
        frame = pack(Welcome(PAGE_SIZE, rows), 1)
        socket.send_fds(self._connection, [frame], [page.descriptor])
        os.close(page.descriptor)
        return page

    def send_descriptor(self, message: Message, descriptor: int, request: int = 0) -> None:
        socket.send_fds(self._connection, [pack(message, request)], [descriptor])

    def close(self) -> None:
        self._connection.close()


class ScriptedScheduler:
    """Listens like a scheduler; `accept` gives the next process."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(library))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.settimeout(TIMEOUT)
        self._peers: list[Peer] = []

    def accept(self) -> tuple[Peer, Hello]:
        """Wait for a process and its HELLO."""
        peer = self.accept_silent()
        _request, hello = peer.receive()
        assert isinstance(hello, Hello)
        return peer, hello

    def accept_silent(self) -> Peer:
        """Wait for somebody, and for nothing that is said."""
        connection, _address = self._listener.accept()
        peer = Peer(connection, self._library)
        self._peers.append(peer)
        return peer

    def has_caller(self) -> bool:
        """Whether somebody has connected and was not accepted yet."""
        return bool(select.select([self._listener], [], [], 0)[0])

    def die(self) -> None:
        """End as a killed scheduler does: its socket stays, and nobody listens."""
        for peer in self._peers:
            peer.close()
        self._listener.close()

    def close(self) -> None:
        self.die()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()
