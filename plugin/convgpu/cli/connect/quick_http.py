"""A client for commands that must answer at once, without http.client, whose import takes longer: see decision 32."""

import socket
from pathlib import Path
from typing import Final

from convgpu.cli.connect.unix_http import TIMEOUT, Answer, encode

_CHUNK: Final = 1 << 16


class QuickHttp:
    """See `HttpClient`. A connection for each request.

    It speaks HTTP/1.0 (RFC 1945): the server closes the connection at the end of the answer, and never sends chunks.

    Args:
        path: of the socket.
        timeout: seconds for each step of an exchange.
    """

    def __init__(self, path: Path, timeout: float = TIMEOUT) -> None:
        self.path = path
        self._timeout = timeout

    def ask(self, method: str, url: str, document: object = None) -> Answer:
        """See `HttpClient.ask`."""
        body, headers = encode(document)
        words = {"Host": "localhost", **headers, "Content-Length": str(len(body or b""))}
        head = "".join(f"{name}: {value}\r\n" for name, value in words.items())
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(self._timeout)
            connection.connect(str(self.path))
            connection.sendall(f"{method} {url} HTTP/1.0\r\n{head}\r\n".encode() + (body or b""))
            received = bytearray()
            while chunk := connection.recv(_CHUNK):
                received += chunk
        return read_answer(bytes(received), has_body=method != "HEAD")


def read_answer(received: bytes, *, has_body: bool = True) -> Answer:
    """Return the answer of a server that has closed the connection.

    Raises:
        ConnectionError: it is no whole answer of HTTP.
    """
    head, gap, content = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    version, _, code = status.partition(" ")
    if not (gap and version.startswith("HTTP/1.") and code[:3].isdecimal()):
        raise ConnectionError(f"no HTTP answer: {received[:80]!r}")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = headers.get("content-length", "")
    if has_body and length.isdecimal() and len(content) < int(length):
        raise ConnectionError(f"the HTTP answer ends after {len(content)} of {length} bytes")
    return Answer(int(code[:3]), headers, content)
