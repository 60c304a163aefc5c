"""Who takes the connections to the sockets of containers."""

import socket
from typing import Protocol

from convgpu.daemon.transport.shares import Share


class ConnectionAcceptor(Protocol):
    """Takes the connections that processes of containers make."""

    def accept(self, container: str, sock: socket.socket) -> None:
        """Take a connection to a container's socket."""

    def forget(self, container: str) -> None:
        """Close the connections to a removed container."""

    def share(self, container: str) -> Share:
        """Return the part of the event loop in which a container's socket is served."""
