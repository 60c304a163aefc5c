"""Administration requests as plain JSON, for tests that send what the typed client cannot and compare whole answers."""

import json

from convgpu.client.admin import AdminClient


class JsonAdmin(AdminClient):
    """A client for which a request is an operation with any fields, and an answer a dictionary."""

    def request(self, op: str, **fields: object) -> dict[str, object]:
        return json.loads(self.request_json(op, **fields))

    def request_json(self, op: str, **fields: object) -> bytes:
        return self.send(json.dumps({"op": op, **fields}).encode())
