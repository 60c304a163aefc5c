"""The administration socket, `admin.sock`."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from convgpu.daemon.transport.connection import Connection, Listener
from convgpu.daemon.transport.shares import Share
from convgpu.protocol.messages import MAX_ADMIN_FRAME, Admin, AdminReply, Message
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.wire import Failure

# Answers of one connection that wait for a disk or a thread: what comes then is read when one of them is there. Else
# who asks for long lists without an end would have all of them made at once.
_MOST_AWAITED: Final = 64


class Answerer(Protocol):
    """Answers administration requests."""

    def answer(self, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Give `reply` the answer to one request."""


class AdminSocket:
    """Listens until it is closed.

    Args:
        share: of the event loop.
        path: of the socket.
        staging: a folder beside it in which to make the socket.
        server: answers each request.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, share: Share, path: Path, staging: Path, server: Answerer) -> None:
        self._share = share
        self._server = server
        self._listener = Listener(self._share, path, 0o600, staging, self._accept)

    def _accept(self, sock: socket.socket) -> None:
        Connection(self._share, sock, _Administrator(self._server).receive, lambda _: None, MAX_ADMIN_FRAME)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


class _Administrator:
    """Has what one connection asks answered."""

    def __init__(self, server: Answerer) -> None:
        self._server = server
        self._awaited = 0

    def receive(self, connection: Connection, request: int, message: Message) -> None:
        """Have a request answered, now or later; hold the connection while too many are to be."""
        if not isinstance(message, Admin):
            text = f"{type(message).__name__} on the administrators' socket"
            connection.fail(ProtocolError(Failure.ORDER, text, request))
            return
        self._awaited += 1
        self._server.answer(message.body, partial(self._reply, connection, request))
        if self._awaited >= _MOST_AWAITED:
            connection.hold()

    def _reply(self, connection: Connection, request: int, reply: bytes) -> None:
        self._awaited -= 1
        connection.send(AdminReply(reply), request)
        connection.go_on()
