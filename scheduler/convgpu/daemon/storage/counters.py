"""Counters of events since the scheduler started; they never decrease, so rates can be computed."""

from bisect import bisect_left
from collections import Counter

from convgpu.protocol import records


class EventCounters:
    """Counts events, and how long allocations were paused."""

    def __init__(self) -> None:
        self._events: Counter[str] = Counter()
        self._waits = [0] * (len(records.WAITS) + 1)
        self._waited = 0.0

    def count(self, kind: str, waited: object) -> None:
        """Count an event; `waited`: seconds of the pause that ended with it, or None."""
        self._events[kind] += 1
        if isinstance(waited, float | int):
            self._waits[bisect_left(records.WAITS, waited)] += 1
            self._waited += waited

    def totals(self) -> dict[str, object]:
        """Return the counts as `records.Totals`."""
        return {"events": dict(self._events), "waits": list(self._waits), "waited": round(self._waited, 3)}
