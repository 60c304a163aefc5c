"""The log's form: one line per record on standard output, with its level and its cause.

Docker turns a plugin's standard error into errors of its own log, and each line into a record.
"""

import itertools
import logging
from contextvars import ContextVar
from typing import Final

_cause: Final[ContextVar[str]] = ContextVar("cause", default="-")
_numbers: Final = itertools.count(1)


def begin(path: str) -> None:
    """Name the request that this thread serves from now on after the last word of its path."""
    _cause.set(f"{path[path.rfind('.') + 1 :]}-{next(_numbers)}")


class OneLine(logging.Formatter):
    """Folds line breaks, so that neither a traceback nor a client's text looks like another record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line."""
        record.cause = _cause.get()
        return " | ".join(super().format(record).splitlines())


def configuration(level: str) -> dict[str, object]:
    """Return the argument of `logging.config.dictConfig`, which gunicorn takes as `logconfig_dict`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": OneLine,
                "format": "%(asctime)s level=%(levelname)s cause=%(cause)s %(name)s: %(message)s",
            }
        },
        "handlers": {"output": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stdout"}},
        "root": {"level": level.upper(), "handlers": ["output"]},
        # gunicorn's own loggers would write to standard error as well.
        "loggers": {
            "gunicorn.error": {"level": level.upper(), "handlers": [], "propagate": True},
        },
    }
