"""Looks at processes that may never return, in threads that are given up when they do not.

Some files of /proc are read under a lock of the process (`exec_update_lock`: `stat`, `wchan`, and what links in its
folder lead to). A process that starts another program holds it, and so does one that closes for that a file of a FUSE
server which does not answer: everybody who reads them waits as long as its user likes.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

# Seconds; such a look takes some ten microseconds.
_TIMEOUT: Final = 0.2
# Times as long that a look is waited for which has not begun: then the machine is slow, and no process in the way.
_MOST_WAITS: Final = 10
# Threads that may hang at a time.
_MOST: Final = 64


@dataclass(slots=True)
class _Look:
    work: Callable[[], Any]
    answer: "SimpleQueue[Any]" = field(default_factory=SimpleQueue)
    has_begun: bool = False


class BoundedLooks:
    """Looks, one at a time, and gives none more than 0.2 s, or 2 s that does not begin; several threads may call it.

    A process at which a look hangs is not looked at again until that look returns. With 64 such processes nobody is
    looked at whose turn would need another thread.
    """

    def __init__(self, timeout: float = _TIMEOUT) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._hung: dict[int, threading.Thread] = {}  # by pid
        self._thread: threading.Thread | None = None
        self._work: SimpleQueue[_Look | None] = SimpleQueue()

    def ask(self, pid: int, look: Callable[[], T]) -> T | None:
        """Return what a look at a process finds, None if it does not return in time. A look raises nothing."""
        with self._lock:
            self._hung = {each: thread for each, thread in self._hung.items() if thread.is_alive()}
            if pid in self._hung or len(self._hung) >= _MOST:
                return None
            if self._thread is None:
                self._work = SimpleQueue()
                self._thread = threading.Thread(target=_serve, args=(self._work,), name="looks", daemon=True)
                self._thread.start()
            asked = _Look(look)
            self._work.put(asked)
            for _ in range(_MOST_WAITS):
                try:
                    return asked.answer.get(timeout=self._timeout)  # type: ignore[no-any-return]
                except Empty:
                    if asked.has_begun:
                        break
            self._work.put(None)  # it ends, should the look ever return
            self._hung[pid] = self._thread
            self._thread = None
            return None


def _serve(work: "SimpleQueue[_Look | None]") -> None:
    while (asked := work.get()) is not None:
        asked.has_begun = True
        asked.answer.put(asked.work())
