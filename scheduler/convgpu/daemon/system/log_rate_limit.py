"""A rate limit for log lines, so that the log stays readable when one error is repeated."""

import logging
from dataclasses import dataclass
from typing import Final

BURST: Final = 20
NOTE_BURST: Final = 200  # below warnings
EVENT_BURST: Final = 200  # of one kind, of one container
SPAN: Final = 10.0
_MOST_SPANS: Final = 4096  # before those that are over are forgotten


@dataclass(slots=True)
class _Span:
    since: float
    passed: int = 0
    held_back: int = 0


class LogRateLimit(logging.Filter):
    """Lets through twenty warnings and errors of one line of our code within ten seconds, and two hundred lesser ones.

    The first one of the next span says how many were held back. A process that connects without end had made a thousand
    lines a second that it lives without its connection. Of events of the history, which are what the log is
    for, it lets through two hundred of one kind and container: a container that provokes them without end fills no
    disk. The history itself has them all.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spans: dict[tuple[object, object], _Span] = {}
        self._most_spans = _MOST_SPANS

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter."""
        event = getattr(record, "event", None)
        if isinstance(event, dict):
            return self._passes(record, (event.get("kind"), event.get("container")), EVENT_BURST)
        burst = BURST if record.levelno >= logging.WARNING else NOTE_BURST
        return self._passes(record, (record.pathname, record.lineno), burst)

    def _passes(self, record: logging.LogRecord, place: tuple[object, object], burst: int) -> bool:
        if len(self._spans) > self._most_spans:
            self._forget_old(record.created)
        span = self._spans.setdefault(place, _Span(record.created))
        if not 0 <= record.created - span.since < SPAN:
            if span.held_back:
                record.msg = f"{record.getMessage()} ({span.held_back} more like this one in the last seconds)"
                record.args = ()
            self._spans[place] = span = _Span(record.created)
        span.passed += 1
        if span.passed > burst:
            span.held_back += 1
            return False
        return True

    def _forget_old(self, now: float) -> None:
        self._spans = {place: span for place, span in self._spans.items() if 0 <= now - span.since < SPAN}
        self._most_spans = max(_MOST_SPANS, 2 * len(self._spans))  # so that each costs a few steps, however many come
