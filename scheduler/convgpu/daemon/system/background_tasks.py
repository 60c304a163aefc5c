"""Background tasks of the event loop."""

import asyncio
from collections.abc import Coroutine


class BackgroundTasks:
    """Keeps tasks referenced until they are done: the event loop itself holds only weak references."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine as a task of the running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
