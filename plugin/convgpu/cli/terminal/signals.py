"""Ctrl-C and its relatives, so that nothing half-made is left behind."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> None:
    """Let a SIGTERM or SIGHUP end this process as Ctrl-C does: by way of what cleans up."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


@contextmanager
def unbroken() -> Iterator[None]:
    """Keep signals that would end us until the block is done: the Engine makes what it was asked for all the same."""
    kept: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: kept.append(number)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if kept:
            signal.raise_signal(kept[0])
