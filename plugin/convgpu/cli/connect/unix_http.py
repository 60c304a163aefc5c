"""HTTP over a UNIX socket: the interface of its two clients, `quick_http` and `requests_http`.

Commands that answer and end use the quick one (decision 32); everything else uses the library.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

TIMEOUT: Final = 10.0  # seconds for each step of an exchange


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the document of the body, None for an empty body.

        Raises:
            ValueError: the body is not JSON.
        """
        return json.loads(self.content) if self.content else None


class HttpClient(Protocol):
    """A client of one socket; may be shared between threads."""

    path: Path

    def ask(self, method: str, url: str, document: object = None) -> Answer:
        """Return the answer to one request.

        Args:
            method: of HTTP.
            url: path and query.
            document: sent as JSON; None sends no body.

        Raises:
            OSError: nobody answers; the error of the socket itself if there is one.
        """


# Opens a client of a socket; both classes are one.
OpenHttp = Callable[[Path], HttpClient]


def encode(document: object) -> tuple[bytes | None, dict[str, str]]:
    """Return the body that carries a document, and its headers."""
    return (None, {}) if document is None else (json.dumps(document).encode(), {"Content-Type": "application/json"})


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes; urllib3 names them in `reason` or in its arguments."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        yield following
        seen.append(following)
        inner = (following.__cause__, following.__context__, getattr(following, "reason", None), *following.args)
        following = next((cause for cause in inner if isinstance(cause, BaseException)), None)
