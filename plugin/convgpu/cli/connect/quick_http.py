"""A client for commands that must answer at once, without http.client, whose import takes longer: see decision 32."""

from __future__ import annotations

try:
    import _socket  # what `socket` wraps: importing that takes 24 ms (decision 143)
except ImportError:  # another Python than CPython
    import socket as _socket  # type: ignore[no-redef]

from convgpu.cli.connect.http_answer import TIMEOUT, Answer, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Final

_CHUNK: Final = 1 << 16


class Question:
    """A request that was sent, and whose answer is read later.

    Args:
        path: of the socket.
        request: all its bytes.
        timeout: seconds for each step of the exchange.
        has_body: whether the answer has a body.

    Raises:
        OSError: nobody takes it; the error of the socket itself.
    """

    def __init__(self, path: str, request: bytes, timeout: float, *, has_body: bool = True) -> None:
        self._has_body = has_body
        self._connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            self._connection.settimeout(timeout)
            self._connection.connect(path)
            self._connection.sendall(request)
        except BaseException:
            self._connection.close()
            raise

    def answer(self) -> Answer:
        """Wait for the answer.

        Raises:
            OSError: there is none.
        """
        try:
            received = bytearray()
            while chunk := self._connection.recv(_CHUNK):
                received += chunk
        finally:
            self._connection.close()
        return read_answer(bytes(received), has_body=self._has_body)

    def close(self) -> None:
        """Close the connection; an answer is not waited for."""
        self._connection.close()


class QuickHttp:
    """See `HttpClient`. A connection for each request.

    It speaks HTTP/1.0 (RFC 1945): the server closes the connection at the end of the answer, and never sends chunks.

    Args:
        path: of the socket.
        timeout: seconds for each step of an exchange.
    """

    def __init__(self, path: os.PathLike[str] | str, timeout: float = TIMEOUT) -> None:
        self.path = path
        self._timeout = timeout

    def send(self, method: str, url: str, document: object = None) -> Question:
        """Send a request; its answer is read when it is wanted.

        Raises:
            OSError: as `HttpClient.ask`.
        """
        body, headers = encode(document)
        words = {"Host": "localhost", **headers, "Content-Length": str(len(body or b""))}
        head = "".join(f"{name}: {value}\r\n" for name, value in words.items())
        request = f"{method} {url} HTTP/1.0\r\n{head}\r\n".encode() + (body or b"")
        return Question(str(self.path), request, self._timeout, has_body=method != "HEAD")

    def ask(self, method: str, url: str, document: object = None) -> Answer:
        """See `HttpClient.ask`."""
        return self.send(method, url, document).answer()


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
