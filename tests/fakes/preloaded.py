"""Python programs that are up within milliseconds, because they are forked from a process that has imported all of it.

Tests start hundreds of schedulers, and imports are half a second of each: together they were a fifth of the time of all
tests. What is forked has its own pid, output, environment and folder, and what it does is what `python -m` does.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path


class Forked:
    """A forked program, with what tests use of subprocess.Popen."""

    def __init__(self, template: "Template", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._template = template

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, at most so many seconds; return its exit status, -N if signal N ended it."""
        if self.returncode is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(descriptor, selectors.EVENT_READ)
                    if not selector.select(timeout):
                        raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            finally:
                os.close(descriptor)
            self.returncode = self._template.status(self.pid)
        return self.returncode


class Template:
    """A process that has imported a module, and forks programs that call one of its functions.

    It and all of them end with the process that made it.

    Args:
        entry: MODULE:FUNCTION of a package or of this folder; the function finds its arguments in sys.argv.
        more: modules that it would import.
    """

    def __init__(self, entry: str, *more: str) -> None:
        self._modules = (entry, *more)
        self._lock = threading.Lock()  # a request and its answer belong together
        self._process: subprocess.Popen[bytes] | None = None  # until the first program is wanted
        self._channel: socket.socket

    def start(
        self,
        arguments: Sequence[str],
        stdout: int,
        stderr: int,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Forked:
        """Start a program with its output in two files."""
        environment = dict(os.environ if env is None else env)
        request = {"arguments": list(arguments), "cwd": str(cwd or Path.cwd()), "environment": environment}
        return Forked(self, self._ask(request, [stdout, stderr]))

    def status(self, pid: int) -> int:
        """Reap a program that has ended; return its exit status as subprocess.Popen does."""
        return self._ask({"pid": pid}, [])

    def _ask(self, request: dict[str, object], descriptors: list[int]) -> int:
        with self._lock:
            if self._process is None:
                self._begin()
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
            answer = self._channel.recv(64)
        assert answer, "the process that forks programs has ended"
        return int(answer)

    def _begin(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -P: this folder's modules stand in for none of a program's. A session of its own: Ctrl-C is for the tests.
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), *self._modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self._close)

    def _close(self) -> None:
        assert self._process is not None
        self._channel.close()
        self._process.wait()


def _end(children: set[int]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _next_program(channel: socket.socket) -> list[str]:
    """Answer requests; return in each forked child, with its arguments."""
    children: set[int] = set()
    while True:
        data, descriptors, _flags, _address = socket.recv_fds(channel, 1 << 20, 2)
        if not data:
            _end(children)
        request = json.loads(data)
        if "pid" in request:
            children.remove(request["pid"])
            _pid, status = os.waitpid(request["pid"], 0)
            channel.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["environment"])
            return request["arguments"]
        children.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(b"%d" % pid)


def _main() -> None:
    sys.path.append(str(Path(__file__).parent))
    _file, channel_number, entry, *more = sys.argv
    module, _, function = entry.partition(":")
    program = getattr(importlib.import_module(module), function)
    for name in more:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork shares the pages of what is never looked at
    with socket.socket(fileno=int(channel_number)) as channel:
        sys.argv = [module, *_next_program(channel)]
    program()


if __name__ == "__main__":
    _main()
