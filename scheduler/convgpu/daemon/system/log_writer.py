"""Writes the log in a thread, because its reader may hang (a killed dockerd leaves the plugin's pipe unread)."""

import contextlib
import logging
import os
import threading
from queue import SimpleQueue
from typing import Final

MAX_LINES: Final = 1 << 12
_CLOSE_TIMEOUT: Final = 1.0  # seconds for what is still to be written


class LogWriter(logging.Handler):
    """Never blocks. When too many lines are unwritten the next ones are dropped, and counted.

    Args:
        descriptor: to write to.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lost = 0
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if self._lines.qsize() >= MAX_LINES:
            self._lost += 1
            return
        try:
            line = self.format(record)
        except Exception:  # as logging's own handlers do: a mistake in a log line ends nobody
            self.handleError(record)
            return
        if self._lost:
            line = f"{line} ({self._lost} lines before this one are lost: nobody read the log)"
            self._lost = 0
        self._lines.put(line)

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            data = f"{line}\n".encode(errors="replace")
            with contextlib.suppress(OSError):  # nobody reads, or no room: there is nowhere to say so
                while data:
                    data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Write what is there, if it is taken soon."""
        self._lines.put(None)
        self._thread.join(_CLOSE_TIMEOUT)
        super().close()
