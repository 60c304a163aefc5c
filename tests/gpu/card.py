"""The card as NVML shows it to the host: what is used, and by which process."""

import ctypes
import os
import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Self

import pynvml

STEP = 0.005  # seconds between two looks
FINE_STEP = 0.001


class Card:
    """Device 0. Sizes in bytes."""

    def __init__(self, library: str | None) -> None:
        if library:
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.uuid = pynvml.nvmlDeviceGetUUID(self._handle)
        self.total = int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).total)

    def describe(self) -> dict[str, object]:
        """Return what a figure has to be read with."""
        return {
            "card": pynvml.nvmlDeviceGetName(self._handle),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
            "total": self.total,
            "used_at_start": self.used(),
            "kernel": os.uname().release,
        }

    def used(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def used_by(self) -> dict[int, int]:
        """Return bytes per host pid."""
        rows = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return {row.pid: int(row.usedGpuMemory) for row in rows if row.usedGpuMemory is not None}


class FreeMemory:
    """Looks while the block runs for the moment at which `size` bytes are free: Unix seconds, None if it was missed."""

    def __init__(self, card: Card, size: int) -> None:
        self.since: float | None = None
        self._card = card
        self._size = size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while self.since is None and not self._ended.wait(FINE_STEP):
            if self._card.total - self._card.used() >= self._size:
                self.since = time.time()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


class Watch:
    """Looks at the card again and again while the block runs; `most` is the highest count of each process."""

    def __init__(self, card: Card) -> None:
        self.most: dict[int, int] = defaultdict(int)
        self.looks = 0
        self._card = card
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(STEP):
            self.looks += 1
            for pid, size in self._card.used_by().items():
                self.most[pid] = max(self.most[pid], size)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
