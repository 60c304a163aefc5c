"""The cause of a thread's work: a correlation id that leads from a request of Docker, or a call of CUDA, to its answer.

The same id stands in the plugin's log, in the scheduler's log and in the event (`records.Event`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_cause: Final[ContextVar[str]] = ContextVar("cause", default="")


def set_cause(cause: str) -> None:
    """Set the cause of what this thread does from now on; empty for none."""
    _cause.set(cause)


def current_cause() -> str:
    """Return the cause of what this thread does; empty if none was set."""
    return _cause.get()


@contextmanager
def bound_cause(cause: str) -> Iterator[None]:
    """Set the cause of the body."""
    token = _cause.set(cause)
    try:
        yield
    finally:
        _cause.reset(token)
