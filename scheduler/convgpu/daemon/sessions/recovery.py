"""The time after a start in which the processes of an earlier scheduler come back, and nothing is granted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.system.procfs import start_time

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
        on_broken: called if the end fails: nothing would ever be granted, so the next scheduler has to try.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        formers: Iterable[PreviousSession],
        *,
        complete: bool,
        is_back: Callable[[PreviousSession], bool],
        is_settled: Callable[[], Awaitable[bool]],
        on_end: Callable[[list[PreviousSession]], Awaitable[None]],
        on_broken: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._missing = list(formers)
        self._complete = complete
        self._is_back = is_back
        self._is_settled = is_settled
        self._on_end = on_end
        self._on_broken = on_broken
        self._deadline = loop.time() + LONGEST
        self._task = loop.create_task(self._wait())
        log.info(
            "no grants until %d processes of an earlier run are back, for %g s at most", len(self._missing), LONGEST
        )

    async def _wait(self) -> None:
        try:
            while not await self._everybody() and self._loop.time() < self._deadline:
                await asyncio.sleep(_STEP)
            await self._on_end(self._missing)
        except Exception:
            log.critical("nothing can be granted: who came back from an earlier run is not known", exc_info=True)
            self._on_broken()

    async def _everybody(self) -> bool:
        self._missing = [one for one in self._missing if start_time(one.pid) == one.started and not self._is_back(one)]
        return self._complete and not self._missing and await self._is_settled()

    def nobody_runs(self) -> None:
        """The Engine says so: there is nobody to wait for but those that are known."""
        self._complete = True

    def close(self) -> None:
        """Wait no longer."""
        self._task.cancel()
