"""The log's form, of plugin and scheduler alike: one line per record, as text or as JSON, each with its cause.

A cause leads from a request of Docker, or a call of CUDA, to its answer: the same word stands in the plugin's log, in
the scheduler's log and in the event (`records.Event`). What clients send can stand in a record and forges nothing:
line breaks are folded and what cannot be printed is escaped.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from convgpu.logs.printable import printable

FORMATS: Final = ("text", "json")
TEXT: Final = "%(asctime)s level=%(levelname)s cause=%(cause)s %(name)s: %(message)s"

_cause: Final[ContextVar[str]] = ContextVar("cause", default="")


def begin(cause: str) -> None:
    """Say for what this thread works from now on."""
    _cause.set(cause)


def current() -> str:
    """Return for what this thread works; empty when nobody said."""
    return _cause.get()


@contextmanager
def working_for(cause: str) -> Iterator[None]:
    """Say for what the body works."""
    token = _cause.set(cause)
    try:
        yield
    finally:
        _cause.reset(token)


class OneLine(logging.Formatter):
    """Text. A record may bring its own `cause` (as `extra`)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line."""
        record.cause = _cause_of(record)
        return printable(" | ".join(super().format(record).splitlines()))


class JsonLine(logging.Formatter):
    """JSON: `time` (Unix seconds), `level`, `cause`, `logger`, `message`; `event` and `error` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one JSON object in one line."""
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "cause": _cause_of(record),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if isinstance(event, Mapping):
            line["event"] = dict(event)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def formatter(form: str) -> logging.Formatter:
    """Return the formatter of one of FORMATS."""
    return JsonLine() if form == "json" else OneLine(TEXT)


def _cause_of(record: logging.LogRecord) -> str:
    return getattr(record, "cause", "") or _cause.get() or "-"
