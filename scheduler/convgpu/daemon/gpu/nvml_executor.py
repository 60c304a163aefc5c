"""Runs NVML calls in one worker thread per device, so that a hung GPU never blocks the event loop.

A call to a lost card can take half a minute. Other devices are queried meanwhile; each device gets one query at a
time. The threads are daemon threads: one that hangs in the driver does not keep the process from ending.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from convgpu.daemon.gpu.nvml import DeviceError, Devices

T = TypeVar("T")

# Seconds. The hook gives up a scheduler that does not answer a request within five.
TIMEOUT: Final = 2.0


class NvmlExecutor:
    """Runs queries on `devices`, each in the device's own thread.

    Equal queries that have not begun yet are merged, so that at most one of each kind waits for a device.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._queues: dict[str, SimpleQueue[Callable[[], None]]] = {}
        self._waiting: dict[tuple[str, Hashable], asyncio.Future[Any]] = {}

    async def ask(self, uuid: str, query: Callable[[Devices, str], T]) -> T:
        """Return the result of a query about a device, which sees everything that happened before this call.

        Raises:
            DeviceError: by the query itself, or because there was no answer within two seconds.
        """
        answer = self._waiting.get((uuid, query)) or self._enqueue(uuid, query)
        try:
            return await asyncio.wait_for(asyncio.shield(answer), TIMEOUT)
        except TimeoutError:
            text = f"NVML has not answered within {TIMEOUT:g} s: see whether nvidia-smi does"
            raise DeviceError(text) from None

    def note_ended(self, uuid: str, pid: int) -> None:
        """Have the next queries about a device ask about a process that has ended, too."""
        self._devices.note_ended(uuid, pid)

    def _enqueue(self, uuid: str, query: Callable[[Devices, str], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # all callers may have timed out

        def resolve(give: Callable[[], None]) -> None:
            if not answer.done():
                give()

        def work() -> None:
            del self._waiting[uuid, query]  # later callers need a result of their own
            try:
                result = query(self._devices, uuid)
            except Exception as error:  # raised in the caller
                loop.call_soon_threadsafe(resolve, lambda error=error: answer.set_exception(error))
            else:
                loop.call_soon_threadsafe(resolve, lambda: answer.set_result(result))

        self._waiting[uuid, query] = answer
        self._queue_of(uuid).put(work)
        return answer

    def _queue_of(self, uuid: str) -> "SimpleQueue[Callable[[], None]]":
        queue = self._queues.get(uuid)
        if queue is None:
            queue = self._queues[uuid] = SimpleQueue()
            threading.Thread(target=_serve, args=(queue,), name=f"nvml {uuid}", daemon=True).start()
        return queue


def _serve(queue: "SimpleQueue[Callable[[], None]]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        while True:
            queue.get()()
