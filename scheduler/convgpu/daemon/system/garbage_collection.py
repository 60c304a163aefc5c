"""Python's collector of reference cycles, kept from holding up a decision.

A full collection looks at every object: 28 ms with 10,000 containers (docs/measurements.md), wherever it falls. Almost
nothing here is a cycle, so full ones are made between events, of what is new only; what was there stays aside.

The collector counts what is made less what is dropped. Where connections come as others go that grows slowly, while
the new objects become many: a collection of the youngest took 1 to 6 ms, and every tenth one, of the middle ones,
14 ms. So the youngest are looked at early, when they are few, and the middle ones with the full collections.
"""

import gc
from collections.abc import Callable
from typing import Final

INTERVAL: Final = 60.0  # seconds between collections of what is new
WHOLE_EVERY: Final = 60  # of them: one looks at everything, so that no cycle stays for good
_YOUNG: Final = 100  # objects made less dropped, until the youngest are looked at
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
        """Set aside what is there, and collect by intervals from now on, and the youngest objects in between."""
        gc.set_threshold(_YOUNG, _NEVER, _NEVER)
        gc.freeze()
        self._call_later(INTERVAL, self._collect)

    def _collect(self) -> None:
        self._collections += 1
        if self._collections % WHOLE_EVERY == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._call_later(INTERVAL, self._collect)
