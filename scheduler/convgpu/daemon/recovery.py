"""The time after a start in which the processes of an earlier scheduler come back, and nothing is granted."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from convgpu.daemon.host import start_time
from convgpu.daemon.store import Former

log = logging.getLogger(__name__)

# Processes look for a new scheduler at least once a second; three chances each.
LONGEST: Final = 3.0
_STEP: Final = 0.05


class Recovery:
    """Ends as soon as everybody is back or gone, and at the latest after three seconds.

    Args:
        formers: who was connected to the earlier scheduler.
        complete: whether nobody else was.
        is_back: says whether a process has a session again.
        is_settled: says whether the driver has freed what ended processes held.
        on_end: gets those that live and are not back (stopped, or out of breath), once.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        formers: Iterable[Former],
        *,
        complete: bool,
        is_back: Callable[[Former], bool],
        is_settled: Callable[[], bool],
        on_end: Callable[[list[Former]], None],
    ) -> None:
        self._loop = loop
        self._missing = list(formers)
        self._complete = complete
        self._is_back = is_back
        self._is_settled = is_settled
        self._on_end = on_end
        self._deadline = loop.time() + LONGEST
        self._timer = loop.call_soon(self._look)
        log.info(
            "no grants until %d processes of an earlier run are back, for %g s at most", len(self._missing), LONGEST
        )

    def _look(self) -> None:
        self._missing = [one for one in self._missing if start_time(one.pid) == one.started and not self._is_back(one)]
        everybody = self._complete and not self._missing and self._is_settled()
        if everybody or self._loop.time() >= self._deadline:
            self._on_end(self._missing)
        else:
            self._timer = self._loop.call_later(_STEP, self._look)

    def nobody_runs(self) -> None:
        """The Engine says so: there is nobody to wait for but those that are known."""
        self._complete = True

    def close(self) -> None:
        """Wait no longer."""
        self._timer.cancel()
