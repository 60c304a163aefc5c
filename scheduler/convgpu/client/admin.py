"""The blocking client of the scheduler's `admin.sock`."""

import json
import socket
import time
from collections.abc import Callable
from typing import Final

from convgpu.logs import formatter as journal
from convgpu.protocol.messages import Admin, AdminReply, MalformedMessageError, pack
from convgpu.protocol.stream import MessageStream, ProtocolError

_RETRY_STEP: Final = 0.05
_OK: Final = b'{"ok":'


class SchedulerRefused(Exception):  # noqa: N818 - it is an answer, not an accident
    """The scheduler's `error` answer: `code` for programs, the text for the user."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class SchedulerUnavailable(Exception):  # noqa: N818 - as above
    """The scheduler could not be reached, or did not answer, within the client's time."""


class AdminClient:
    """Asks one question per connection, so it may be shared between threads.

    Args:
        path: of `admin.sock`.
        timeout: seconds for a whole request, waiting for a scheduler that is just starting included.
        answer: seconds for the answer of a scheduler that is there; None for what is left of `timeout`.

    Each question carries the cause for which the asking thread works (`convgpu.logs.formatter`).
    """

    def __init__(self, path: str, timeout: float = 10.0, answer: float | None = None) -> None:
        self._path = path
        self._timeout = timeout
        self._answer = timeout if answer is None else answer

    def request(self, op: str, **fields: object) -> dict[str, object]:
        """Return the `ok` object of the answer (docs/protocol.md, Administration).

        Raises:
            SchedulerRefused: the scheduler said no; the text is for the user.
            SchedulerUnavailable: no answer in time.
        """
        try:
            result = json.loads(self.request_json(op, **fields))
        except ValueError as error:
            raise self._unavailable(error) from error
        return result if isinstance(result, dict) else {}

    def request_json(self, op: str, **fields: object) -> bytes:
        """Return the same as JSON, as the scheduler wrote it: for whoever hands it on.

        Raises:
            SchedulerRefused, SchedulerUnavailable: as `request`.
        """
        deadline = time.monotonic() + self._timeout
        if cause := journal.current():
            fields["cause"] = cause
        try:
            frame = pack(Admin(json.dumps({"op": op, **fields}).encode()), 1)
        except MalformedMessageError as error:
            raise SchedulerRefused("invalid", f"the request is too long: {error}") from error
        try:
            with self._connect(deadline) as connection:
                deadline = min(deadline, time.monotonic() + self._answer)
                connection.settimeout(self._answer)
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
