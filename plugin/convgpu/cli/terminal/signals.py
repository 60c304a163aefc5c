"""SIGINT, SIGTERM and SIGHUP, so that no incomplete container is left behind."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP end this process by SystemExit, so that contexts are left and clean up."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


@contextmanager
def unbroken() -> Iterator[None]:
    """Defer ending signals until the block is done: the Engine completes a request in any case."""
    pending: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: pending.append(number)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if pending:
            signal.raise_signal(pending[0])
