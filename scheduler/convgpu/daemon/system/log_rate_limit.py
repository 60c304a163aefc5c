"""A rate limit for log lines, so that the log stays readable when one error is repeated."""

import logging
from dataclasses import dataclass
from typing import Final

BURST: Final = 20
SPAN: Final = 10.0


@dataclass(slots=True)
class _Span:
    since: float
    passed: int = 0
    held_back: int = 0


class LogRateLimit(logging.Filter):
    """Lets through twenty warnings and errors of one line of our code within ten seconds.

    The first one of the next span says how many were held back. Events of the history (level info) are all let through:
    they are what the log is for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spans: dict[tuple[str, int], _Span] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter."""
        if record.levelno < logging.WARNING:
            return True
        place = (record.pathname, record.lineno)
        span = self._spans.setdefault(place, _Span(record.created))
        if not 0 <= record.created - span.since < SPAN:
            if span.held_back:
                record.msg = f"{record.getMessage()} ({span.held_back} more like this one in the last seconds)"
                record.args = ()
            self._spans[place] = span = _Span(record.created)
        span.passed += 1
        if span.passed > BURST:
            span.held_back += 1
            return False
        return True
