"""Answers of HTTP servers, for both clients of UNIX sockets (`unix_http`)."""

from __future__ import annotations

from convgpu.protocol.quick import quick_json
from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

# Seconds for each step of an exchange, as long as the Engine waits for a plugin: one that was enabled a moment ago took
# more than ten to answer on a busy host.
TIMEOUT: Final = 30.0
# Seconds until a plugin that was enabled answers: on a host with ten times as much work as cores it took more than 30.
BEGINNING: Final = 90.0


class Answer(Record):
    """The answer to one request; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the document of the body, None for an empty body.

        Raises:
            ValueError: the body is not JSON.
        """
        return quick_json.loads(self.content) if self.content else None


def encode(document: object) -> tuple[bytes | None, dict[str, str]]:
    """Return the body that carries a document, and its headers."""
    if document is None:
        return None, {}
    import json  # the quick path only asks

    return json.dumps(document).encode(), {"Content-Type": "application/json"}
