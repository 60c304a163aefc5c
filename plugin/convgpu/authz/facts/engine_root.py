"""The root folder of the Engine's process, by which the plugin reads the host's paths."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_CONNECT_TIMEOUT: Final = 1.0  # seconds
# Seconds for which it is not looked for again: one call looks up thousands of names, and each time costs a connection.
_FRESH: Final = 1.0


class EngineRoot:
    """Finds the root folder of the process that listens on the Engine's socket; several threads may call it.

    The process is the Engine, or the systemd that opened the socket for it. Reading its root takes the host's PID
    namespace and CAP_SYS_PTRACE.

    Args:
        engine: the Engine's socket.
        clock: returns seconds.
    """

    def __init__(self, engine: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._until = 0.0

    def __call__(self) -> Path | None:
        """Return the folder; None if it cannot be read."""
        with self._lock:
            now = self._clock()
            if now >= self._until:
                self._root, self._until = self._find(), now + _FRESH
            root = self._root
        return root if root is not None and os.access(root / "dev", os.R_OK) else None

    def _find(self) -> Path | None:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.settimeout(_CONNECT_TIMEOUT)
                connection.connect(str(self._engine))
                pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            except BlockingIOError:  # EAGAIN: more connections wait than it takes, so it is there, and as it was
                return self._root
            except OSError:
                return None
        return Path(f"/proc/{pid}/root")
