"""Log formatters: one line for each log record, as text or as JSON, with its cause.

Clients' texts can stand in a log record and forge nothing: line breaks are folded and unprintable characters escaped.
"""

import json
import logging
from collections.abc import Mapping
from typing import Final

from convgpu.logs.cause import current_cause
from convgpu.logs.printable import printable

FORMATS: Final = ("text", "json")
TEXT_FORMAT: Final = "%(asctime)s level=%(levelname)s cause=%(cause)s %(name)s: %(message)s"


class TextFormatter(logging.Formatter):
    """One line of text. A log record may bring its own `cause` (as `extra`)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the log record in one line."""
        record.cause = _cause_of(record)
        return printable(" | ".join(super().format(record).splitlines()))


class JsonFormatter(logging.Formatter):
    """JSON: `time` (Unix seconds), `level`, `cause`, `logger`, `message`; `event` and `error` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the log record as one JSON object in one line."""
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


def create_formatter(form: str) -> logging.Formatter:
    """Return the formatter of one of FORMATS."""
    return JsonFormatter() if form == "json" else TextFormatter(TEXT_FORMAT)


def _cause_of(record: logging.LogRecord) -> str:
    return getattr(record, "cause", "") or current_cause() or "-"
