"""A log handler for a pipe that nobody may read: a killed dockerd leaves that of its plugin so."""

import logging
import os
import select
import stat
from typing import Final

_PATIENCE: Final = 200  # milliseconds that a full pipe is waited for, once until it takes lines again


class PipeHandler(logging.Handler):
    """Writes to a descriptor, and never blocks where it is a pipe: lines that it does not take are lost, and counted.

    It has no thread, so that a process that forks can use it. Others write to the same pipe.

    Args:
        descriptor: to write to; it stays open.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._given, self._descriptor = descriptor, _without_waiting(descriptor)
        self._room = select.poll()
        self._room.register(self._descriptor, select.POLLOUT)
        self._lost = 0
        self._end = b""  # of a line of which a part was written only

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            line = self.format(record)
        except Exception:  # as logging's own handlers do: a mistake in a log line ends nobody
            self.handleError(record)
            return
        if self._lost:
            line = f"{line} ({self._lost} lines before this one are lost: nobody read the log)"
        if self._write(f"{line}\n".encode(errors="replace")):
            self._lost = 0
        else:
            self._lost += 1

    def _write(self, data: bytes) -> bool:
        patience = 0 if self._lost else _PATIENCE
        data = self._end + data
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
                self._end = b"\n" if data else b""
            except BlockingIOError:
                if not self._room.poll(patience):
                    return False
            except OSError:  # nobody has the pipe's other end, or the disk is full: there is nowhere to say so
                return False
        return True

    def close(self) -> None:
        """See logging.Handler; what was given stays open."""
        if self._descriptor != self._given:
            os.close(self._descriptor)
            self._descriptor = self._given
        super().close()


def _without_waiting(descriptor: int) -> int:
    """Return a descriptor whose writes do not block, of a pipe; the given one of a file or terminal.

    Its own open file description, by /proc (proc_pid_fd(5)): O_NONBLOCK on the given one would be that of all who have
    it.
    """
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return descriptor
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # another user's, or ENXIO: nobody has its other end
        return descriptor
