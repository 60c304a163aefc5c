"""HTTP over a UNIX socket, for what has to answer fast: an HTTP library takes longer to import than to ask."""

import http.client
import json
import socket
from email.message import Message
from pathlib import Path
from typing import Final

_TIMEOUT: Final = 10.0  # seconds


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        # Set before it connects, so that `close` closes it when that fails.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, url: str, body: object = None) -> tuple[int, object]:
    """Return status and JSON of one request; an answer without body is None.

    Args:
        path: of the socket.
        method: of HTTP.
        url: path and query.
        body: sent as JSON; None sends none.

    Raises:
        OSError: nobody answers.
        ValueError: the answer is not JSON.
    """
    status, _, content = _exchange(path, method, url, None if body is None else json.dumps(body))
    return status, json.loads(content) if content else None


def get(path: Path, url: str) -> tuple[int, Message, bytes]:
    """Return status, headers and body of a GET, as they are.

    Raises:
        OSError: nobody answers.
    """
    return _exchange(path, "GET", url, None)


def _exchange(path: Path, method: str, url: str, data: str | None) -> tuple[int, Message, bytes]:
    connection = _Connection(path)
    try:
        connection.request(method, url, data, {"Content-Type": "application/json"} if data else {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer: {error!r}") from error
    finally:
        connection.close()
