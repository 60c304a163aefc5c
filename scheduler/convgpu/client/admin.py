"""The blocking client of the scheduler's `admin.sock`."""

import json
import socket
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from convgpu.client.scheduler import Scheduler, SchedulerRefused, SchedulerUnavailable
from convgpu.logs.cause import current_cause
from convgpu.protocol.messages import Admin, AdminReply, MalformedMessageError, pack
from convgpu.protocol.requests import CreateVolume, InvalidRequestError, Request, write_request
from convgpu.protocol.stream import MessageStream, ProtocolError

_RETRY_STEP: Final = 0.05
_OK: Final = b'{"ok":'


class AdminClient(Scheduler):
    """Makes a connection for each request, so it may be shared between threads.

    Args:
        path: of `admin.sock`.
        timeout: seconds for a whole request, waiting for a scheduler that is just starting included.
        answer_timeout: seconds for the answer of a scheduler that is there; None for the rest of `timeout`.

    Each request carries the cause for which the asking thread works (`convgpu.logs.cause`).
    """

    def __init__(self, path: str, timeout: float = 10.0, answer_timeout: float | None = None) -> None:
        self._path = path
        self._timeout = timeout
        self._answer_timeout = timeout if answer_timeout is None else answer_timeout

    def ask_json(self, request: Request[Any]) -> bytes:
        """See `Scheduler.ask_json`."""
        request = msgspec.structs.replace(request, cause=current_cause() or request.cause)
        if isinstance(request, CreateVolume):  # what the Engine is told to have failed must not be there
            request = msgspec.structs.replace(request, until=time.time() + min(self._timeout, self._answer_timeout))
        try:
            return self.send(write_request(request))
        except InvalidRequestError as error:
            raise SchedulerRefused("invalid", str(error)) from error

    def send(self, body: bytes) -> bytes:
        """Return the JSON in the `ok` answer to a request that is JSON already.

        Raises:
            SchedulerRefused, SchedulerUnavailable: see `Scheduler`.
        """
        deadline = time.monotonic() + self._timeout
        try:
            frame = pack(Admin(body), 1)
        except MalformedMessageError as error:
            raise SchedulerRefused("invalid", f"the request is too long: {error}") from error
        try:
            with self._connect(deadline) as connection:
                deadline = min(deadline, time.monotonic() + self._answer_timeout)
                connection.settimeout(self._answer_timeout)
                connection.sendall(frame)
                answer = _read_reply(connection, lambda: deadline - time.monotonic())
            if answer.startswith(_OK) and answer.endswith(b"}"):
                return answer[len(_OK) : -1]
            refusal = json.loads(answer)["error"]
            code, text = str(refusal["code"]), str(refusal["text"])
        except (OSError, ProtocolError, ValueError, LookupError, TypeError) as error:
            raise self._unavailable(error) from error
        raise SchedulerRefused(code, text)

    def _unavailable(self, error: Exception) -> SchedulerUnavailable:
        reason = getattr(error, "strerror", None) or error  # without [Errno N] in front
        return SchedulerUnavailable(f"the scheduler at {self._path} does not answer: {reason}")

    def _connect(self, deadline: float) -> socket.socket:
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(max(deadline - time.monotonic(), _RETRY_STEP))
                connection.connect(self._path)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_STEP)
            except OSError:
                connection.close()
                raise
            else:
                return connection


def _read_reply(connection: socket.socket, time_left: Callable[[], float]) -> bytes:
    stream = MessageStream(max_frame=1 << 30)
    while True:
        connection.settimeout(max(time_left(), 0.001))
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionError("it closed the connection")
        for _request, message in stream.receive(data):
            if not isinstance(message, AdminReply):
                raise ConnectionError(f"it answered {type(message).__name__}")
            return message.body
