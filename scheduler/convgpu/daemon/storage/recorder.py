"""Records the events and steps of the machine in a file, for `convgpud replay`."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convgpu.core.events import Event
from convgpu.core.recording.format import Entry, Header, encode, entry_of
from convgpu.core.step import Step

log = logging.getLogger(__name__)

MAX_BYTES: Final = 256 << 20
FLUSH_INTERVAL: Final = 0.5  # seconds
MAX_BUFFERED: Final = 1 << 20

_CallLater = Callable[[float, Callable[[], None]], object]


class Recorder:
    """Appends lines to a file; they are buffered, and written at intervals, after an error and at the end.

    A recording keeps nothing else from working: a file that cannot be written, or that is full, ends it with one line
    in the log. A file ends with a whole line, so that all of it can be replayed.

    Args:
        path: the file; made if it is not there, else continued.
        call_later: calls a function after so many seconds.
        limit: bytes that the file may have.
    """

    def __init__(self, path: Path, call_later: _CallLater, limit: int = MAX_BYTES) -> None:
        self._path = path
        self._call_later = call_later
        self._limit = limit
        self._buffer = bytearray()
        self._size = 0  # of the file
        self._is_flush_due = False
        self._file: int | None = None
        try:
            self._open()
        except OSError as error:
            self._stop(f"cannot be written: {error.strerror}")

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._buffer += b"\n"  # a scheduler was killed, or the host lost power, in the middle of a line
        log.info("events are recorded in %s", self._path)

    def begin(self, header: Header) -> None:
        """Record the machine before its first event."""
        self._add(header)

    def record(self, now: float, event: Event, outcome: Step | Exception) -> None:
        """Record an event that was handled at `now`, with its step or with what the machine raised."""
        if self._file is None:
            return
        self._add(entry_of(now, event, outcome))
        if isinstance(outcome, Exception):
            self.flush()

    def _add(self, line: Header | Entry) -> None:
        if self._file is None:
            return
        try:
            text = encode(line)
        except (TypeError, ValueError) as error:
            self.flush()
            self._stop(f"cannot hold {line}: {error}")
            return
        if self._size + len(self._buffer) + len(text) > self._limit:
            self.flush()
            self._stop(f"has reached {self._limit >> 20} MiB; move it away and start the scheduler again to go on")
            return
        self._buffer += text
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if len(self._buffer) > MAX_BUFFERED:
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._call_later(FLUSH_INTERVAL, self.flush)

    def flush(self) -> None:
        """Write all lines that are buffered."""
        self._is_flush_due = False
        try:
            while self._file is not None and self._buffer:
                written = os.write(self._file, self._buffer)
                self._size += written
                del self._buffer[:written]
        except OSError as error:
            self._cut_off_half_a_line()
            self._stop(f"cannot be written: {error.strerror}")

    def _cut_off_half_a_line(self) -> None:
        """Leave whole lines only, after a disk took a part of the buffer."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                tail = os.pread(self._file, MAX_BUFFERED, max(self._size - MAX_BUFFERED, 0))
                os.ftruncate(self._file, self._size - len(tail) + tail.rfind(b"\n") + 1)

    def _stop(self, reason: str) -> None:
        log.warning("no events are recorded any more: %s %s", self._path, reason)
        self._buffer.clear()
        self._release()

    def _release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def close(self) -> None:
        """Write the rest and close the file."""
        self.flush()
        self._release()
