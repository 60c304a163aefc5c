"""The supervisor of the plugin's processes: one that ends by itself is restarted.

The Engine would restart the whole plugin, but it disables one that ends a second time while it does so.
"""

import ctypes
import logging
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Final

_log: Final = logging.getLogger(__name__)

# Seconds from SIGTERM to SIGKILL; the Engine gives the whole plugin ten.
GRACE: Final = 6.0
# A process that ends sooner than this many seconds after its start would do so again.
MIN_UPTIME: Final = 10.0
_STEP: Final = 0.02

_PR_SET_PDEATHSIG: Final = 1
# Loaded here and not in the child, where only few things may be done.
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """Runs child processes; ends them all when this process gets a signal to end, or one ends soon after its start.

    Must be used in the main thread, which alone may handle signals.

    Args:
        commands: name and argument vector of each.
        environment: of all of them.
        grace: seconds between SIGTERM and SIGKILL.
        min_uptime: seconds after which a child that ends is restarted.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        grace: float = GRACE,
        min_uptime: float = MIN_UPTIME,
    ) -> None:
        self._commands = commands
        self._environment = environment
        self._grace = grace
        self._min_uptime = min_uptime
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, float] = {}
        self._ending = False

    def run(self) -> int:
        """Start the children and wait; return 0 after a signal to end, 1 if a child ends too soon."""
        reader, writer = socket.socketpair()
        with reader, writer:
            writer.setblocking(False)
            # A signal's number is written there by the interpreter, so that recv below wakes up for each one.
            before = signal.set_wakeup_fd(writer.fileno())
            signals = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
            handlers = {number: signal.signal(number, self._on_signal) for number in signals}
            try:
                return self._run(reader)
            finally:
                self._end()
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(before)

    def _run(self, reader: socket.socket) -> int:
        for name in self._commands:
            self._start(name)
        while not self._ending:
            for name, child in list(self._children.items()):
                if child.poll() is None:
                    continue
                _log.error("%s ended by itself: %s", name, _describe_exit(child.returncode))
                if time.monotonic() - self._started[name] < self._min_uptime:
                    return 1
                self._start(name)
            reader.recv(64)
        _log.info("a signal asked for the end")
        return 0

    def _start(self, name: str) -> None:
        self._started[name] = time.monotonic()
        self._children[name] = subprocess.Popen(
            self._commands[name],
            env=dict(self._environment),
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread
        )

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._ending = True

    def _end(self) -> None:
        for child in self._children.values():
            if child.poll() is None:
                child.terminate()
        deadline = time.monotonic() + self._grace
        for name, child in self._children.items():
            try:
                child.wait(max(deadline - time.monotonic(), _STEP))
            except subprocess.TimeoutExpired:
                _log.warning("%s did not end within %g s and is killed", name, self._grace)
                child.kill()
                child.wait()


def _end_with_parent() -> None:
    """Run in a child before its program: let the kernel end it when this process is killed.

    Without that a daemon would go on beside the one of the next start and hold its sockets.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def _describe_exit(returncode: int) -> str:
    if returncode < 0:
        return signal.Signals(-returncode).name
    return f"exit status {returncode}"
