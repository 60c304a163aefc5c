"""The supervisor of the plugin's processes: one that ends by itself is restarted.

The Engine would restart the whole plugin, but it disables one that ends a second time while it does so.
"""

import ctypes
import logging
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

_log: Final = logging.getLogger(__name__)

# Seconds from SIGTERM to SIGKILL; the Engine gives the whole plugin ten.
GRACE: Final = 6.0
# A process that ends sooner than this many seconds after its start would do so again.
MIN_UPTIME: Final = 10.0
# Seconds until a process that ended sooner is started again: twice as many each time, up to the second figure.
_PAUSES: Final = 0.25, 5.0
_STEP: Final = 0.02
_BACKLOG: Final = 2048  # connections that wait to be accepted, as many as gunicorn asks for
_ROOT_ONLY: Final = 0o177  # a umask: the socket is as powerful as the Engine's own

_PR_SET_PDEATHSIG: Final = 1
# Loaded here and not in the child, where only few things may be done.
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class _Child:
    """One process that is kept running.

    Attributes:
        process: it, or the one that ended last.
        started: when, by the monotonic clock.
        early_ends: how often in a row it ended soon after its start.
        due: when it is started again; None while it runs.
    """

    process: subprocess.Popen[bytes]
    started: float
    early_ends: int = 0
    due: float | None = None


class Supervisor:
    """Runs child processes; ends them all when this process gets a signal to end.

    Must be used in the main thread, which alone may handle signals.

    Args:
        commands: name and argument vector of each.
        environment: of all of them.
        sockets: those for which this process listens, by name. A client that comes before the child accepts waits for
            it. The child gets `--bind fd://NUMBER`, as gunicorn reads it.
        grace: seconds between SIGTERM and SIGKILL.
        min_uptime: seconds after which a child that ends is restarted at once.
        gives_up: whether everything ends when one ends sooner; else it is restarted after a pause.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        sockets: Mapping[str, Path] | None = None,
        *,
        grace: float = GRACE,
        min_uptime: float = MIN_UPTIME,
        gives_up: bool = True,
    ) -> None:
        self._commands = commands
        self._environment = environment
        self._sockets = sockets or {}
        self._grace = grace
        self._min_uptime = min_uptime
        self._gives_up = gives_up
        self._children: dict[str, _Child] = {}
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
        # In the order of the sockets: who waits for one, as the Engine does, gives up after a while.
        for name in sorted(self._commands, key=lambda name: name not in self._sockets):
            self._children[name] = _Child(self._start(name), time.monotonic())
        while not self._ending:
            if not all(self._keep_running(name, child) for name, child in self._children.items()):
                return 1
            dues = [child.due for child in self._children.values() if child.due is not None]
            reader.settimeout(max(min(dues) - time.monotonic(), _STEP) if dues else None)
            try:
                reader.recv(64)
            except TimeoutError:
                continue
        _log.info("a signal asked for the end")
        return 0

    def _keep_running(self, name: str, child: _Child) -> bool:
        """Start a child again that has ended, now or after a pause; return False to give up."""
        now = time.monotonic()
        if child.due is None and child.process.poll() is not None:
            early = now - child.started < self._min_uptime
            is_own_doing = child.process.returncode != -signal.SIGKILL  # else somebody else's, or the kernel's
            child.early_ends = child.early_ends * is_own_doing + 1 if early else 0
            _log.error("%s ended by itself: %s", name, _describe_exit(child.process.returncode))
            if early and self._gives_up:
                return False
            child.due = now + _pause(child.early_ends)
        if child.due is not None and child.due <= now:
            try:
                child.process, child.started, child.due = self._start(name), now, None
            except OSError as error:
                _log.error("%s does not start: %s", name, error)
                child.early_ends += 1
                child.due = now + _pause(child.early_ends)
        return True

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        if name not in self._sockets:
            return self._spawn(self._commands[name])
        with _listen(self._sockets[name]) as listener:
            number = listener.fileno()
            return self._spawn([*self._commands[name], "--bind", f"fd://{number}"], number)

    def _spawn(self, command: Sequence[str], *descriptors: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=dict(self._environment),
            pass_fds=descriptors,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread
        )

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._ending = True

    def _end(self) -> None:
        for child in self._children.values():
            if child.process.poll() is None:
                child.process.terminate()
        deadline = time.monotonic() + self._grace
        for name, child in self._children.items():
            try:
                child.process.wait(max(deadline - time.monotonic(), _STEP))
            except subprocess.TimeoutExpired:
                _log.warning("%s did not end within %g s and is killed", name, self._grace)
                child.process.kill()
                child.process.wait()


def _pause(early_ends: int) -> float:
    """Return the seconds until a process is started that ended early so often in a row."""
    return min(_PAUSES[0] * 2 ** (early_ends - 1), _PAUSES[1]) if early_ends else 0.0


def _listen(path: Path) -> socket.socket:
    """Return a socket that listens at the path, for root only, in place of one that was left there.

    Raises:
        OSError: something else lies there, or no socket can be made.
    """
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    umask = os.umask(_ROOT_ONLY)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(umask)
    return listener


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
