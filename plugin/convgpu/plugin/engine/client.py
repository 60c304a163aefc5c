"""The Docker Engine as the plugin asks it, over its own UNIX socket.

Never from inside a volume call: there the Engine holds locks that an answer may need, and while it starts it mounts
before it answers anything. Each question comes back to an authorization plugin as two calls, so its caller must hold no
lock or thread that these need.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import ConnectionError as ConnectionLost
from requests.exceptions import RequestException

_Answer = TypeVar("_Answer")

_BAD_REQUEST: Final = 400


class EngineUnavailable(Exception):  # noqa: N818 - a state, not an accident
    """The Engine does not answer, or its answer is no Engine's; one line."""


class Engine:
    """One Engine; may be shared between threads.

    Args:
        socket: on which it serves its API. It need not be there yet, and may come and go.
        timeout: seconds for each step of a question.
    """

    def __init__(self, socket: Path, timeout: float = 1.0) -> None:
        self._socket = socket
        self._timeout = timeout
        self._lock = threading.Lock()
        self._client: docker.APIClient | None = None

    def ask(self, question: Callable[[docker.APIClient], _Answer]) -> _Answer:
        """Return the answer to a question, put to the Engine's client; it should have no effect, or one only once.

        Raises:
            docker.errors.NotFound: the Engine does not have what the question names.
            EngineUnavailable: any other failure.
        """
        try:
            try:
                return question(self._connected())
            except ConnectionLost:
                # The connection is of before a restart of the Engine.
                self._forget()
                return question(self._connected())
        except NotFound:
            raise
        except APIError as error:
            if error.status_code == _BAD_REQUEST:
                self._forget()  # maybe a newer Engine, which does not speak the version that was agreed on
            raise EngineUnavailable(f"the Engine at {self._socket} refused: {error.explanation or error}") from error
        except (DockerException, RequestException, OSError, ValueError) as error:
            self._forget()
            raise EngineUnavailable(f"no Engine answers at {self._socket}: {_first_line(error)}") from error

    def _connected(self) -> docker.APIClient:
        with self._lock:
            if self._client is None:
                # Asks for the Engine's version, so it fails while there is no Engine. Fractions of a second are fine.
                timeout: Any = self._timeout
                self._client = docker.APIClient(f"unix://{self._socket}", timeout=timeout)
            return self._client

    def _forget(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
