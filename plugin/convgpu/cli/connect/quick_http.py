"""A client of the standard library alone, for commands that must answer at once: see decision 32."""

import http.client
import socket
from pathlib import Path

from convgpu.cli.connect.unix_http import TIMEOUT, Answer, encode


class QuickHttp:
    """See `HttpClient`. A connection for each request.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, method: str, url: str, document: object = None) -> Answer:
        """See `HttpClient.ask`."""
        body, headers = encode(document)
        connection = _Connection(self.path)
        try:
            connection.request(method, url, body, headers)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        except http.client.HTTPException as error:
            raise ConnectionError(f"no HTTP answer: {error!r}") from error
        finally:
            connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        # Set before it connects, so that `close` closes it when that fails.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
