"""GET on the plugin's socket, passed on as it is."""

import http.client
import socket
from email.message import Message
from pathlib import Path
from typing import Final

_TIMEOUT: Final = 10.0  # seconds


class _Connection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        # Set before it connects, so that `close` closes it when that fails.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Forward:
    """Reads from the plugin's socket; a connection for each request, as the plugin wants it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, target: str) -> tuple[int, Message, bytes]:
        """Return status, headers and body.

        Raises:
            OSError: nobody answers.
            http.client.HTTPException: not HTTP.
        """
        connection = _Connection(self._path)
        try:
            connection.request("GET", target)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()
