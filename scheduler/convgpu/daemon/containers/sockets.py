"""The sockets of containers. Those of volumes that no container has mounted are few, however many volumes there are."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from convgpu.daemon.containers.acceptor import ConnectionAcceptor
from convgpu.daemon.containers.folders import Folders
from convgpu.daemon.transport.connection import Listener
from convgpu.protocol.layout import SOCKET_FILE

log = logging.getLogger(__name__)

MAX_UNMOUNTED: Final = 128


class ContainerSockets:
    """The listening sockets by the name of the volume.

    Each costs two descriptors, and volumes cost their user nothing: only the newest of those that no container has
    mounted listen (decision 170). A mount opens the socket again.

    Args:
        acceptor: gets the connections.
        has_sessions: whether processes of a container are known; its socket stays.
    """

    def __init__(self, folders: Folders, acceptor: ConnectionAcceptor, has_sessions: Callable[[str], bool]) -> None:
        self._folders = folders
        self._acceptor = acceptor
        self._has_sessions = has_sessions
        self._listeners: dict[str, Listener] = {}
        self._unmounted: dict[str, None] = {}  # that listen, the oldest first

    def open(self, name: str, *, mounted: bool) -> None:
        """Listen for a container, if it does not or if its socket is another one. Raises OSError."""
        listener = self._listeners.get(name)
        if listener is not None and not listener.is_in_place():
            log.warning("the socket of volume %s was not ours any more and is made again", name)
            self._listeners.pop(name).close()
            listener = None
        if listener is None:
            self._listeners[name] = self._listen(name)
        self.mark(name, mounted=mounted)

    def _listen(self, name: str) -> Listener:
        path, accept = self._folders.path(name) / SOCKET_FILE, partial(self._acceptor.accept, name)
        return Listener(self._acceptor.share(name), path, 0o666, self._folders.staging, accept)

    def mark(self, name: str, *, mounted: bool) -> None:
        """Note whether a container has a volume mounted; beyond the bound the oldest sockets without are closed."""
        self._unmounted.pop(name, None)
        if mounted:
            return
        self._unmounted[name] = None
        for oldest in list(self._unmounted)[: max(len(self._unmounted) - MAX_UNMOUNTED, 0)]:
            if not self._has_sessions(oldest):
                self.close(oldest)

    def close(self, name: str) -> None:
        """Close the socket of a container and the connections that have no session."""
        self._unmounted.pop(name, None)
        listener = self._listeners.pop(name, None)
        if listener is not None:
            listener.close()
        self._acceptor.forget(name)

    def close_all(self) -> None:
        """Stop listening."""
        for listener in self._listeners.values():
            listener.close()
