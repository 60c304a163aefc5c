"""The page's questions beside its feed: longer spans, a container's history and its allocations."""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qs

import msgspec

from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.serve.feed import Feed
from convgpu.protocol.inspection.usage import STEPS, Step
from convgpu.protocol.requests import VolumeName

_STEPS: Final[Mapping[str, Step]] = {str(step): step for step in STEPS}
_MOST_EVENTS: Final = 1000


class BadQuestion(ValueError):  # noqa: N818 - the state of a request
    """A query that the page would not ask."""


class Questions:
    """Answers questions of the page with the scheduler's records, as JSON.

    Args:
        scheduler: is asked.
        feed: knows the numbers of containers.
    """

    def __init__(self, scheduler: Scheduler, feed: Feed) -> None:
        self._scheduler = scheduler
        self._feed = feed
        self._answers: Mapping[str, Callable[[Mapping[str, str]], object]] = {
            "usage": self._usage,
            "history": self._history,
            "allocations": self._allocations,
        }

    @property
    def places(self) -> frozenset[str]:
        """The paths of the questions."""
        return frozenset(self._answers)

    def answer(self, place: str, query: str) -> bytes:
        """Return the answer to a question.

        Raises:
            BadQuestion: the query makes no sense.
            Refused, Unavailable: as the scheduler answers.
        """
        try:
            fields = {name: values[-1] for name, values in parse_qs(query, max_num_fields=8).items()}
        except ValueError as error:
            raise BadQuestion("too many fields") from error
        return msgspec.json.encode(self._answers[place](fields))

    def _usage(self, fields: Mapping[str, str]) -> object:
        step = _STEPS.get(fields.get("step", ""))
        if step is None:
            raise BadQuestion(f"step: one of {', '.join(_STEPS)}")
        return {"step": step, "samples": self._feed.past(step)}

    def _history(self, fields: Mapping[str, str]) -> object:
        limit = fields.get("limit", str(_MOST_EVENTS))
        if not (limit.isascii() and limit.isdecimal() and 0 < int(limit) <= _MOST_EVENTS):
            raise BadQuestion(f"limit: a number up to {_MOST_EVENTS}")
        return {"events": self._scheduler.history(_container(fields), limit=int(limit))}

    def _allocations(self, fields: Mapping[str, str]) -> object:
        return self._scheduler.allocations(_container(fields))


def _container(fields: Mapping[str, str]) -> str:
    try:
        return msgspec.convert(fields.get("container", ""), VolumeName)
    except msgspec.ValidationError as error:
        raise BadQuestion("container: the name of a volume") from error
