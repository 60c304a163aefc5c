"""The Docker Engine as the plugin asks it, over its own UNIX socket.

Never from inside a volume call: there the Engine holds locks that an answer may need, and while it starts it mounts
before it answers anything. Each question comes back to an authorization plugin as two calls, so its caller must hold no
lock or thread that these need.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import ConnectionError as ConnectionLost
from requests.exceptions import RequestException

from convgpu.plugin.engine.waiting import Place

_Answer = TypeVar("_Answer")

_BAD_REQUEST: Final = 400
_STEP: Final = 0.02  # seconds


class EngineUnavailable(Exception):  # noqa: N818 - a state, not an accident
    """The Engine does not answer, or its answer is no Engine's; one line."""


class Engine:
    """One Engine; may be shared between threads.

    Args:
        socket: on which it serves its API. It need not be there yet, and may come and go.
        timeout: seconds for each step of a question.
        wait: for some seconds.
    """

    def __init__(self, socket: Path, timeout: float = 1.0, wait: Callable[[float], None] = time.sleep) -> None:
        self._socket = socket
        self._timeout = timeout
        self._wait = wait
        self._lock = threading.Lock()
        self._client: docker.APIClient | None = None

    def ask(self, question: Callable[[docker.APIClient], _Answer]) -> _Answer:
        """Return the answer to a question, put to the Engine's client; it should have no effect, or one only once.

        Raises:
            docker.errors.NotFound: the Engine does not have what the question names.
            EngineUnavailable: any other failure.
        """
        try:
            return self._ask_when_there_is_room(question)
        except NotFound:
            raise
        except APIError as error:
            if error.status_code == _BAD_REQUEST:
                self._forget()  # maybe a newer Engine, which does not speak the version that was agreed on
            raise EngineUnavailable(f"the Engine at {self._socket} refused: {error.explanation or error}") from error
        except (DockerException, RequestException, OSError, ValueError) as error:
            self._forget()
            raise EngineUnavailable(f"no Engine answers at {self._socket}: {_first_line(error)}") from error

    def read(self, path: str, place: Place, timeout: float | None = None) -> Any | None:
        """Return the document at a path of the Engine's API, None if there is none. See `Waiting`.

        A connection of its own makes the wait one that others can end, and a late answer delays nobody.

        Args:
            path: of the document.
            place: of the caller.
            timeout: seconds for each step, if not those of all questions.

        Raises:
            EngineUnavailable: the Engine cannot be reached, or refuses.
            TimeoutError: it does not answer.
        """
        limit = self._timeout if timeout is None else timeout
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                # Without a timeout of Python's, with which a full queue of callers would be an error at once.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(limit))
                connection.connect(str(self._socket))
                connection.settimeout(limit)
                place.keep(connection)
                # By HTTP/1.0 an answer is what comes until the end; http.client takes a fifth of such a call's time.
                connection.sendall(f"GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
                status, document = _read_answer(connection)
        except TimeoutError:
            raise
        except (OSError, ValueError, LookupError) as error:
            raise EngineUnavailable(f"no Engine answers at {self._socket}: {_first_line(error)}") from error
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            text = document.get("message") if isinstance(document, dict) else document
            raise EngineUnavailable(f"the Engine at {self._socket} refused: {text}")
        return document

    def _ask_when_there_is_room(self, question: Callable[[docker.APIClient], _Answer]) -> _Answer:
        """Ask again for some time while more callers wait for the Engine than its socket queues: in a flood of them."""
        for _ in range(int(self._timeout / _STEP)):
            try:
                return self._ask_anew(question)
            except (DockerException, RequestException) as error:
                if not _is_crowded(error):
                    raise
                self._forget()
            self._wait(_STEP)
        return self._ask_anew(question)

    def _ask_anew(self, question: Callable[[docker.APIClient], _Answer]) -> _Answer:
        try:
            return question(self._connected())
        except ConnectionLost:
            # The connection is of before a restart of the Engine.
            self._forget()
            return question(self._connected())

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


def _read_answer(connection: socket.socket) -> tuple[int, Any]:
    """Return the status and the document of an answer.

    Raises:
        OSError, ValueError, LookupError: it is none, or not whole.
    """
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    return int(head.split(None, 2)[1]), json.loads(body)


def _is_crowded(error: BaseException | None) -> bool:
    """Tell whether a UNIX socket with a timeout refused to queue a connection (EAGAIN): it never waits for room."""
    while error is not None and not isinstance(error, BlockingIOError):
        error = error.__cause__ or error.__context__
    return error is not None


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
