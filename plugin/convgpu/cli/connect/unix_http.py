"""HTTP over a UNIX socket: the interface of its two clients, `quick_http` and `requests_http`.

Commands that answer and end use the quick one (decision 32); everything else uses the library.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from convgpu.cli.connect.http_answer import Answer


class HttpClient(Protocol):
    """A client of one socket; may be shared between threads."""

    @property
    def path(self) -> os.PathLike[str] | str:
        """The path of the socket."""

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


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes; urllib3 names them in `reason` or in its arguments."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        yield following
        seen.append(following)
        inner = (following.__cause__, following.__context__, getattr(following, "reason", None), *following.args)
        following = next((cause for cause in inner if isinstance(cause, BaseException)), None)
