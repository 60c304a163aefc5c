"""The client of requests-unixsocket: for everything that runs on, or that need not answer at once (decision 32)."""

from pathlib import Path
from urllib.parse import quote

import requests_unixsocket
from requests import RequestException

from convgpu.cli.connect.http_answer import TIMEOUT, Answer, encode
from convgpu.cli.connect.unix_http import causes


class RequestsHttp:
    """See `HttpClient`.

    A session for each request: the library keeps a connection for each URL, and a feed's URL is another one each time.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._base = f"http+unix://{quote(str(path), safe='')}"

    def ask(self, method: str, url: str, document: object = None) -> Answer:
        """See `HttpClient.ask`."""
        body, headers = encode(document)
        with requests_unixsocket.Session() as session:
            session.trust_env = False  # neither a proxy nor .netrc has a say on a socket
            try:
                response = session.request(
                    method, self._base + url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
                )
            except RequestException as error:
                raise _socket_error(error) from error
        found = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, found, response.content)


def _socket_error(error: RequestException) -> OSError:
    """Return the error of the socket behind one of the library's."""
    for cause in causes(error):
        if isinstance(cause, OSError) and not isinstance(cause, RequestException):
            return cause
    return ConnectionError(f"no HTTP answer: {error!r}")
