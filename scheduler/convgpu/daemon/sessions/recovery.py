"""Recovery: the time after a start in which previous sessions reconnect, and nothing is granted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.sessions import SessionTable
from convgpu.daemon.system.procfs import lives_since

log = logging.getLogger(__name__)

# Seconds. Processes try to reach a new scheduler at least once a second: three attempts each.
MAX_RECOVERY_TIME: Final = 3.0
_STEP: Final = 0.05


def living_sessions(table: SessionTable) -> list[PreviousSession]:
    """Return the processes of an earlier scheduler that live, and forget the others."""
    previous = table.all()
    living = [process for process in previous if _lives(process)]
    for process in set(previous) - set(living):
        table.drop(process)
    return living


def _lives(process: PreviousSession) -> bool:
    return lives_since(process.pid, process.started)


class Recovery:
    """Ends as soon as every previous session has reconnected or ended, at the latest after three seconds.

    Args:
        previous: processes that were connected to the earlier scheduler.
        complete: whether all processes that may hold memory are among these.
        has_reconnected: says whether a process has a session again.
        is_settled: says whether the driver has freed what ended processes held.
        on_end: called once with the processes that live and have not reconnected (stopped, or slow).
        on_failure: called if `on_end` fails: nothing would ever be granted, so this scheduler has to be replaced.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        previous: Iterable[PreviousSession],
        *,
        complete: bool,
        has_reconnected: Callable[[PreviousSession], bool],
        is_settled: Callable[[], Awaitable[bool]],
        on_end: Callable[[list[PreviousSession]], Awaitable[None]],
        on_failure: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._missing = list(previous)
        self._complete = complete
        self._has_reconnected = has_reconnected
        self._is_settled = is_settled
        self._on_end = on_end
        self._on_failure = on_failure
        self._deadline = loop.time() + MAX_RECOVERY_TIME
        self._task = loop.create_task(self._wait())
        log.info(
            "no grants until %d processes of an earlier run are back, for %g s at most",
            len(self._missing),
            MAX_RECOVERY_TIME,
        )

    async def _wait(self) -> None:
        try:
            while not await self._is_over() and self._loop.time() < self._deadline:
                await asyncio.sleep(_STEP)
            await self._on_end(self._missing)
        except Exception:
            log.critical("nothing can be granted: who came back from an earlier run is not known", exc_info=True)
            self._on_failure()

    async def _is_over(self) -> bool:
        self._missing = [process for process in self._missing if _lives(process) and not self._has_reconnected(process)]
        return self._complete and not self._missing and await self._is_settled()

    def mark_complete(self) -> None:
        """Wait only for the known processes: the Engine lists no running container, so that there are no others."""
        self._complete = True

    def close(self) -> None:
        """Stop waiting."""
        self._task.cancel()
