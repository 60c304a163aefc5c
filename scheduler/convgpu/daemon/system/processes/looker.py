"""Looks at processes for the event loop, which serves others meanwhile."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

log: Final = logging.getLogger(__name__)


class Looker:
    """Looks in one thread, which is started when it is asked first, and at one process of each owner in turn.

    A look that waits (`bounded_looks`) delays those after it, and nothing else.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}  # of owners of whom one look is due
        self._thread: threading.Thread | None = None

    def ask(self, owner: Hashable, look: Callable[[], T], answer: Callable[[T | None], None]) -> None:
        """Call `answer` in the loop with what a look returns, None if it fails.

        Looks of one owner are taken in order, and one of them at a time, so that others need not wait for all.
        """
        if self._thread is None and not self._start():  # anybody may have used up the host's processes
            self._loop.call_soon(answer, _take(look))
            return

        def take() -> None:
            self._loop.call_soon_threadsafe(self._answer, owner, partial(answer, _take(look)))

        if owner in self._waiting:
            self._waiting[owner].append(take)
        else:
            self._waiting[owner] = deque()
            self._due.put(take)

    def _answer(self, owner: Hashable, answer: Callable[[], None]) -> None:
        waiting = self._waiting[owner]
        if waiting:
            self._due.put(waiting.popleft())
        else:
            del self._waiting[owner]
        answer()

    def _start(self) -> bool:
        thread = threading.Thread(target=self._serve, name="looker", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _serve(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            while True:
                self._due.get()()


def _take(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except Exception:  # a fault of our own, which must not keep all others waiting for ever
        log.exception("a process could not be looked at")
        return None
