"""The Engine's API, byte for byte: what no client library would send."""

import contextlib
import http.client
import json
import socket
from dataclasses import dataclass, field
from typing import Any

DENIED = "authorization denied by plugin"


@dataclass(frozen=True)
class Answer:
    """What the Engine said; `denied` by an authorization plugin."""

    status: int
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def denied(self) -> bool:
        return self.status == 403 and DENIED in self.raw.decode(errors="replace")


@dataclass(frozen=True)
class Call:
    """One request; a body that is no bytes goes as JSON."""

    method: str
    uri: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False

    def encode(self) -> bytes:
        body = self.body
        if body is None:
            body = b""
        elif not isinstance(body, bytes):
            body = json.dumps(body).encode()
        headers = {"Host": "docker", "Content-Type": "application/json", **self.headers}
        if self.chunked:
            headers["Transfer-Encoding"] = "chunked"
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        else:
            headers["Content-Length"] = str(len(body))
        lines = [f"{self.method} {self.uri} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


class RawEngine:
    """Sends calls over a UNIX socket, each on a connection of its own."""

    def __init__(self, path: str) -> None:
        self.path = path

    def send(self, call: Call) -> Answer:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path)  # without a timeout, with which a full queue would be an error
            connection.settimeout(60)
            with contextlib.suppress(BrokenPipeError):  # it answers before it has read everything
                connection.sendall(call.encode())
            answer = http.client.HTTPResponse(connection, method=call.method)
            answer.begin()
            return Answer(answer.status, answer.read())

    def get(self, path: str) -> Any:
        answer = self.send(Call("GET", path))
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, body: Any = None) -> Answer:
        return self.send(Call("POST", path, body))

    def remove(self, container: str) -> None:
        self.send(Call("DELETE", f"/containers/{container}?force=1&v=1"))
