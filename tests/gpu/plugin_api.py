"""What the plugin says about itself, asked over HTTP on its socket."""

import http.client
import json
import socket
from pathlib import Path


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class PluginApi:
    """GET /v1/... (docs/protocol.md)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, what: str) -> dict:
        """Return the answer to GET /v1/`what`.

        Raises:
            AssertionError: it is an error.
        """
        return self._ask("GET", what)

    def post(self, what: str) -> dict:
        """Return the answer to POST /v1/`what`.

        Raises:
            AssertionError: it is an error.
        """
        return self._ask("POST", what)

    def _ask(self, method: str, what: str) -> dict:
        connection = _UnixConnection(self._path)
        connection.request(method, f"/v1/{what}")
        answer = connection.getresponse()
        body = json.loads(answer.read())
        connection.close()
        assert answer.status == 200, body
        return body

    def events(self, container: str, *kinds: str) -> list[dict]:
        """Return the events of these kinds of a container, oldest first."""
        events = self.get("events")["events"]
        return [event for event in events if event["container"] == container and event["kind"] in kinds]

    def container(self, name: str) -> dict:
        return self.get(f"containers/{name}")

    def bytes_out(self, name: str) -> int:
        """Return how much of a container's memory has left the cards."""
        return sum(device["out"] for device in self.container(name)["devices"])
