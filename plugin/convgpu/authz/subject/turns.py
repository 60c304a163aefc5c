"""Lets few ask at once, in the order in which they came; who needs much, counts as having come later."""

import heapq
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Seconds for each unit that one needs: so whoever needs little overtakes a flood of those who need much, and whoever
# needs much comes to a turn in a flood of those who need little.
_LATER: Final = 0.25


class Turns:
    """Delays who comes while others are at it, and refuses nobody; may be shared between threads.

    A semaphore of Python's has no order.

    Args:
        at_once: that have a turn.
        patience: seconds after which one goes on without a turn, as those who have one may never end.
    """

    def __init__(self, at_once: int, patience: float) -> None:
        self._free = at_once
        self._patience = patience
        self._queue: list[tuple[float, int, threading.Lock]] = []  # a heap: when, number, locked until their turn
        self._number = 0
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, size: int) -> Iterator[None]:
        """Wait for a turn, which lasts as long as this context; `size`: what it will cost, in any unit."""
        has_turn = self._take(size)
        try:
            yield
        finally:
            if has_turn:
                self._pass_on()

    def _take(self, size: int) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            own = threading.Lock()
            own.acquire()
            self._number += 1
            row = time.monotonic() + _LATER * size, self._number, own
            heapq.heappush(self._queue, row)
        if own.acquire(timeout=self._patience):
            return True
        with self._lock:
            if row not in self._queue:
                return True  # it came just now
            self._queue.remove(row)
            heapq.heapify(self._queue)
            return False

    def _pass_on(self) -> None:
        with self._lock:
            if self._queue:
                heapq.heappop(self._queue)[2].release()
            else:
                self._free += 1
