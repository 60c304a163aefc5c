"""Typed requests to the scheduler, over whatever carries them."""

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from convgpu.protocol.records import Container
from convgpu.protocol.requests import AnswerT, ListContainers, Request, read_answer


class SchedulerRefused(Exception):  # noqa: N818 - it is an answer, not an accident
    """The scheduler's `error` answer: `code` for programs, the text for the user."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class SchedulerUnavailable(Exception):  # noqa: N818 - as above
    """The scheduler could not be reached, or did not answer, within the client's time."""


class AnswerNotUnderstood(ValueError):  # noqa: N818 - as above
    """The answer is not of the request's type: the two ends are of different versions."""


class Scheduler(ABC):
    """Carries out administration requests (docs/protocol.md, Administration); may be shared between threads.

    All methods raise SchedulerRefused, when the scheduler said no, and SchedulerUnavailable, when there is no answer;
    those that return records raise AnswerNotUnderstood, when the answer is not of the request's type.
    """

    @abstractmethod
    def ask_json(self, request: Request[Any]) -> bytes:
        """Return the answer as the scheduler wrote it, for callers that hand it on."""

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """Return the answer."""
        try:
            return read_answer(request, self.ask_json(request))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AnswerNotUnderstood(f"the answer to {request.operation!r} is not understood: {error}") from error

    def list_containers(self) -> tuple[Container, ...]:
        """Return all containers that the scheduler knows."""
        return self.ask(ListContainers()).containers

    def find_container(self, name: str) -> Container | None:
        """Return the container with the volume `name`, or None if the scheduler does not know it."""
        try:
            return next(iter(self.ask(ListContainers(name)).containers), None)
        except SchedulerRefused as refusal:
            # A name that no volume of ours can have is as unknown as a name that none happens to have.
            if refusal.code in {"unknown", "invalid"}:
                return None
            raise
