"""The administration socket, `admin.sock`."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from convgpu.daemon.transport.connection import Connection, Listener
from convgpu.daemon.transport.shares import Share
from convgpu.protocol.messages import MAX_ADMIN_FRAME, Admin, AdminReply, Message
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.wire import Failure


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
        Connection(self._share, sock, self._receive, lambda _: None, MAX_ADMIN_FRAME)

    def _receive(self, connection: Connection, request: int, message: Message) -> None:
        if isinstance(message, Admin):
            self._server.answer(message.body, lambda reply: connection.send(AdminReply(reply), request))
        else:
            text = f"{type(message).__name__} on the administrators' socket"
            connection.fail(ProtocolError(Failure.ORDER, text, request))

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
