"""What is used of the card, sampled by NVML a thousand times a second."""

import ctypes
import threading
import time
from pathlib import Path
from typing import Self

PERIOD = 0.001


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Card:
    """Device 0 as NVML counts it. `driver`: the folder of a simulated driver, None on a card."""

    def __init__(self, driver: Path | None) -> None:
        self._library = ctypes.CDLL(str(driver / "libnvidia-ml.so.1") if driver else "libnvidia-ml.so.1")
        self._check(self._library.nvmlInit_v2())
        self._handle = ctypes.c_void_p()
        self._check(self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._handle)))

    @staticmethod
    def _check(result: int) -> None:
        if result:
            raise OSError(f"NVML: error {result}")

    def used(self) -> int:
        """Return the bytes in use."""
        memory = Memory()
        self._check(self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)))
        return int(memory.used)

    def rest(self, seconds: float = 15.0) -> int:
        """Return the bytes in use once they have not changed for a while: what ended processes had is free then."""
        end, seen, since = time.monotonic() + seconds, self.used(), time.monotonic()
        while time.monotonic() < min(end, since + 0.5):
            now = self.used()
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.02)
        return seen


class Sampler:
    """The most that was used above `floor` while it ran, and how often and how long it was more than `limit`.

    `longest` is for how many seconds more than the limit was used, and `when` for how many it had run then.
    """

    def __init__(self, card: Card, floor: int, limit: int) -> None:
        self._card, self._floor, self._limit = card, floor, limit
        self.peak = self.samples = self.above = 0
        self.longest = self.when = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_reason: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        start = due = time.monotonic()
        began = 0.0
        while not self._stop.is_set():
            now, used = time.monotonic(), self._card.used() - self._floor
            self.samples += 1
            self.peak = max(self.peak, used)
            if used <= self._limit:
                began = 0.0
            else:
                began = began or now
                self.above += 1
                if now - began > self.longest:
                    self.longest, self.when = now - began, now - start
            due = max(due + PERIOD, now)
            time.sleep(max(0.0, due - time.monotonic()))
