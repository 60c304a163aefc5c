"""Runs NVML calls in one worker thread per device, so that a hung GPU never blocks the event loop.

A lost card can keep a call for half a minute. The other devices are asked meanwhile, and each device is asked one
question at a time. The threads are daemon threads: one that hangs in the driver does not keep the process from ending.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from convgpu.daemon.gpu.nvml import DeviceError, Devices

T = TypeVar("T")

# Seconds; the hook gives up a scheduler that leaves a request open for five.
TIMEOUT: Final = 2.0


class NvmlExecutor:
    """Puts questions to `devices`, each in the device's own thread.

    A question that has not been put yet is put once for all who ask it: however many do, one of each kind waits.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._queues: dict[str, SimpleQueue[Callable[[], None]]] = {}
        self._waiting: dict[tuple[str, Hashable], asyncio.Future[Any]] = {}

    async def ask(self, uuid: str, question: Callable[[Devices, str], T]) -> T:
        """Return the answer to a question about a device; what happened before it was asked counts in it.

        Raises:
            DeviceError: the question's own, or there was no answer within two seconds.
        """
        answer = self._waiting.get((uuid, question)) or self._put(uuid, question)
        try:
            return await asyncio.wait_for(asyncio.shield(answer), TIMEOUT)
        except TimeoutError:
            text = f"NVML has not answered within {TIMEOUT:g} s: see whether nvidia-smi does"
            raise DeviceError(text) from None

    def _put(self, uuid: str, question: Callable[[Devices, str], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits any more

        def resolve(give: Callable[[], None]) -> None:
            if not answer.done():
                give()

        def work() -> None:
            del self._waiting[uuid, question]  # who asks from now on may ask about what happens from now on
            try:
                result = question(self._devices, uuid)
            except Exception as error:  # it is the asker's
                loop.call_soon_threadsafe(resolve, lambda error=error: answer.set_exception(error))
            else:
                loop.call_soon_threadsafe(resolve, lambda: answer.set_result(result))

        self._waiting[uuid, question] = answer
        self._queue_of(uuid).put(work)
        return answer

    def _queue_of(self, uuid: str) -> "SimpleQueue[Callable[[], None]]":
        queue = self._queues.get(uuid)
        if queue is None:
            queue = self._queues[uuid] = SimpleQueue()
            threading.Thread(target=_serve, args=(queue,), name=f"nvml {uuid}", daemon=True).start()
        return queue


def _serve(queue: "SimpleQueue[Callable[[], None]]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
        while True:
            queue.get()()
