"""Work that may never return, in threads that do not keep this process from ending, as those of `to_thread` do."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Return what some work returns, in a thread of its own; raise what it raises.

    Raises:
        RuntimeError: no thread can be started now: anybody may have used up the host's processes.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def resolve(give: Callable[[], None]) -> None:
        if not answer.done():
            give()

    def run() -> None:
        with suppress(RuntimeError):  # the loop is closed
            try:
                result = work()
            except Exception as error:  # raised in the caller
                loop.call_soon_threadsafe(resolve, lambda error=error: answer.set_exception(error))
            else:
                loop.call_soon_threadsafe(resolve, lambda: answer.set_result(result))

    threading.Thread(target=run, name="apart", daemon=True).start()
    return await answer
