"""SIGINT, SIGTERM and SIGHUP, so that no incomplete container is left behind."""

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
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
def until_signalled() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits so many seconds and tells whether SIGINT or SIGTERM has come, before or meanwhile.

    A handler runs between any two steps of the main thread, so it takes no lock: one that sets a `threading.Event` may
    find its lock taken by the wait it ends, and then neither goes on.
    """
    ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: os.eventfd_write(ended, 1)) for number in numbers}
    try:
        yield lambda seconds: bool(select.select([ended], [], [], seconds)[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(ended)


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
