"""Python's collector of reference cycles, kept from holding up a decision.

A full collection looks at every object: 28 ms with 10,000 containers (docs/measurements.md), wherever it falls. Almost
nothing here is a cycle, so full ones are made between events, of what is new only; what was there stays aside.
"""

import gc
from collections.abc import Callable
from typing import Final

INTERVAL: Final = 60.0  # seconds between collections of what is new
WHOLE_EVERY: Final = 60  # of them: one looks at everything, so that no cycle stays for good
_NEVER: Final = 1 << 30


class GarbageCollection:
    """Collects at intervals.

    Args:
        call_later: calls a function after so many seconds.
    """

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._call_later = call_later
        self._collections = 0

    def start(self) -> None:
        """Set aside what is there, and collect by intervals from now on; young objects are collected as ever."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        gc.freeze()
        self._call_later(INTERVAL, self._collect)

    def _collect(self) -> None:
        self._collections += 1
        if self._collections % WHOLE_EVERY == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._call_later(INTERVAL, self._collect)
