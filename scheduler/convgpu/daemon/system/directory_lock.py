"""The lock file of a scheduler's directory: one scheduler at a time works there."""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convgpu.protocol.layout import LOCK_FILE

log = logging.getLogger(__name__)

_INTERVAL: Final = 2.0  # seconds between checks of the lock file


class DirectoryInUseError(OSError):
    """Another scheduler works in the directory."""


class DirectoryLock:
    """Held until this process ends.

    Args:
        directory: to lock; it is made if it is missing.

    Raises:
        DirectoryInUseError: another scheduler works there.
        OSError: it cannot be made or locked.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / LOCK_FILE
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._timer: asyncio.TimerHandle | None = None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            text = f"another convgpud is at work in {directory}: stop it, or name another --directory"
            raise DirectoryInUseError(text) from error

    def watch(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` when the file is removed or replaced: another scheduler may begin in the directory then."""
        if self._is_held():
            self._timer = loop.call_later(_INTERVAL, self.watch, loop, on_lost)
        else:
            log.critical("%s was removed or replaced while this scheduler worked there: it ends", self._path)
            on_lost()

    def _is_held(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def release(self) -> None:
        """Let another scheduler work there."""
        self.stop_watching()
        os.close(self._descriptor)

    def stop_watching(self) -> None:
        """Check the file no more. The lock is held until the process ends."""
        if self._timer is not None:
            self._timer.cancel()
