"""A real convgpud for tests, and processes that speak its protocol without a hook."""

import contextlib
import ctypes
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import AnyStr, ClassVar

from built import DRIVER, HOOK, PORTER
from preloaded import Forked, Template

from convgpu.client.admin import AdminClient
from convgpu.client.scheduler import SchedulerUnavailable
from convgpu.daemon.residency.porter import pool_path
from convgpu.protocol.messages import (
    Accepted,
    Allocate,
    Freed,
    Hello,
    Message,
    Rejected,
    Usage,
    Welcome,
    pack,
)
from convgpu.protocol.residency.messages import Able
from convgpu.protocol.stream import MessageStream
from convgpu.protocol.wire import Mover

GIB = 1 << 30
CONTEXT = 526 << 20  # of the simulated driver


class JsonAdmin(AdminClient):
    """A client for which a request is an operation with any fields, and an answer a dictionary.

    For tests that send what the typed client cannot, and compare whole answers.
    """

    def request(self, op: str, **fields: object) -> dict[str, object]:
        return json.loads(self.request_json(op, **fields))

    def request_json(self, op: str, **fields: object) -> bytes:
        return self.send(json.dumps({"op": op, **fields}).encode())


class Daemon:
    """convgpud in a folder of its own. Its log is `log`."""

    default_options: ClassVar[dict[str, str]] = {"gpus": "all"}
    template: ClassVar[Template | None] = None
    """What forks it; None, as in benchmarks: each start is that of `python -m`."""

    def __init__(self, directory: Path, devices: str = "simulated:16GiB", *options: str) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.admin = JsonAdmin(str(directory / "admin.sock"), timeout=120)
        self.wrapper: list[str] = []
        self.options = list(options)
        self._command = [
            sys.executable,
            "-m",
            "convgpu.daemon",
            f"--directory={directory}",
            f"--devices={devices}",
            f"--libraries={HOOK}",
            f"--simulated-driver={DRIVER}",
            f"--porter={PORTER / 'convgpu-porter'}",
        ]
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.start()

    @property
    def command(self) -> list[str]:
        return [*self._command, *self.options]

    def start(self) -> None:
        self.launch()
        try:
            self.admin.request("devices")  # waits until it answers
        except SchedulerUnavailable as error:
            raise SchedulerUnavailable(f"{error}\n{self.log.read_text()}") from error

    def launch(self) -> None:
        """Start it and go on, whether it answers already or not."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A fork has the libraries that the template was started with.
            if self.template is None or self.wrapper or "LD_PRELOAD" in os.environ:
                self.process = subprocess.Popen([*self.wrapper, *self.command], stdout=log, stderr=log)
            else:
                self.process = self.template.start(self.command[3:], log.fileno(), log.fileno())

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=120)

    def ail(self, *faults: str) -> None:
        """Let the simulated NVML show faults, `ROW KEY=NUMBER` each, instead of those before; see faults.h."""
        fresh = self.directory / "driver/faults.new"
        fresh.write_text("".join(f"{fault}\n" for fault in faults))
        fresh.replace(self.directory / "driver/faults")

    def container(self, name: str, **options: str) -> Path:
        """Create and mount a volume, with its limit on all GPUs unless `gpus` says otherwise; return its folder."""
        self.admin.request("create", name=name, options={**self.default_options, **options})
        return Path(str(self.admin.request("mount", name=name, id="1")["mountpoint"]))

    def events(self, *kinds: str) -> list[dict[str, object]]:
        events = self.admin.request("events")["events"]
        return [event for event in events if not kinds or event["kind"] in kinds]

    def state(self, name: str) -> dict[str, object]:
        return self.admin.request("containers", name=name)["containers"][0]


_BODIES = Template("process_body:main")


def connect(folder: Path) -> socket.socket:
    """A connection that says nothing, made by the test itself."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(f"/proc/self/fd/{descriptor}/scheduler.sock")
        except OSError:
            connection.close()
            raise
    finally:
        os.close(descriptor)
    return connection


def _receive_socket(channel: socket.socket) -> socket.socket:
    _data, [descriptor], _flags, _address = socket.recv_fds(channel, 1, 1)
    connection = socket.socket(fileno=descriptor)
    connection.settimeout(120)
    return connection


class Process:
    """A connection to a container's socket; `running_daemon` ends those that were not ended."""

    opened: ClassVar[list["Process"]] = []

    def __init__(self, folder: Path, name: str = "scheduler.sock") -> None:
        self.opened.append(self)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # In its folder, because sun_path has room for 107 bytes only.
            self._body = _BODIES.start([name], theirs.fileno(), 2, cwd=folder)
        self.socket = _receive_socket(self._channel)
        self.answers: dict[int, Message] = {}
        self._stream = MessageStream()
        self._request = 0
        self._page: mmap.mmap | None = None
        self.descriptor = -1
        self._library = ctypes.CDLL(str(HOOK / "libconvgpu-page.so"))
        self._library.convgpu_page_read.restype = ctypes.c_uint64
        self._library.convgpu_page_take_all.restype = ctypes.c_uint64

    def reconnect(self, held: tuple[tuple[bytes, int], ...]) -> Welcome:
        """Connect again, as the same process; whoever still needs the old socket keeps a duplicate."""
        self._channel.send(b"\n")
        self.cut()
        self.socket = _receive_socket(self._channel)
        self._stream = MessageStream()
        return self.hello(held=held)

    def hold(self, size: int, row: int = 0, managed: int = 0) -> None:
        """Take memory of a simulated device past the scheduler; the driver counts `size` bytes, with a context.

        Of managed memory it counts none. What is too little for a context is taken without one.
        """
        self._channel.send(f"{row} {size - CONTEXT if size > CONTEXT else -size} {managed}".encode())
        assert self._channel.recv(1) == b"x"

    def hello(self, memory: str = "", held: tuple[tuple[bytes, int], ...] = (), program: str = "test") -> Welcome:
        self.socket.sendall(pack(Hello(self._body.pid, program, memory, held), 1))
        data, descriptors, _flags, _address = socket.recv_fds(self.socket, 65536, 1)
        [(_, welcome)] = self._stream.receive(data)
        assert isinstance(welcome, Welcome), welcome
        self.descriptor = descriptors[0]
        self._page = mmap.mmap(self.descriptor, welcome.page_size)
        return welcome

    @property
    def pid(self) -> int:
        return self._body.pid

    @property
    def _address(self) -> ctypes.c_void_p:
        assert self._page is not None
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._page)))

    def headroom(self, row: int = 0) -> int:
        return self._library.convgpu_page_read(self._address, row)

    def notify_on_free(self, row: int = 0) -> bool:
        assert self._page is not None
        return self._page[64 + 64 * row + 8] != 0

    def give(self, size: int, row: int = 0) -> None:
        """Free: add to the headroom and report it if that is wanted."""
        self._library.convgpu_page_lease(self._address, row, ctypes.c_uint64(size))
        if self.notify_on_free(row):
            self._library.convgpu_page_arm(self._address, row, 0)
            self.send(Freed(row))

    def send(self, message: Message) -> int:
        self._request += 1
        self.socket.sendall(pack(message, self._request))
        return self._request

    def allocate(self, size: int, row: int = 0) -> int:
        """Ask; the answer may never come."""
        return self.send(Allocate(row, size, "cuMemAlloc"))

    def answer(self, request: int) -> Message:
        """Wait for an answer."""
        while request not in self.answers:
            data = self.socket.recv(65536)
            assert data, "the scheduler closed the connection"
            self.answers.update(self._stream.receive(data))
        return self.answers[request]

    def ask(self, message: Message) -> Accepted | Rejected | Usage | Message:
        return self.answer(self.send(message))

    def received(self) -> bytes:
        """Everything until the scheduler closes the connection."""
        return b"".join(iter(lambda: self.socket.recv(65536), b""))

    def end(self) -> None:
        """Die: the process first, as its socket is closed while the kernel ends it."""
        if self._body.poll() is None:
            self._body.kill()
            self._body.wait()
        self._channel.close()
        self.cut()

    def cut(self) -> None:
        """Lose the connection and live on."""
        self.socket.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def elastic_process(daemon: Daemon, name: str, memory: str) -> tuple[Process, bytes]:
    """Return a process that can be stopped, in a new container, and the device that it has."""
    process = Process(daemon.container(name, memory=memory, suspend="auto"))
    [row] = process.hello().devices
    process.send(Able(Mover.VMM))
    return process, row.uuid


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Poll a condition of real processes, with a bound; ever more seldom, as each question takes time of theirs."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(pause)
        pause = min(1.3 * pause, 0.01)


def host_pool(directory: Path) -> Path:
    """Where the porter's pool of a scheduler in a directory lies."""
    return pool_path(directory)


@contextlib.contextmanager
def running_daemon(directory: Path, devices: str = "simulated:16GiB", *options: str) -> Iterator[Daemon]:
    daemon = Daemon(directory, devices, *options)
    pool = host_pool(directory)  # while the folder is there
    try:
        yield daemon
    finally:
        daemon.kill()
        shutil.rmtree(pool.parent, ignore_errors=True)
        for process in Process.opened:
            process.end()
        Process.opened.clear()


@contextlib.contextmanager
def ended_with_test(program: "subprocess.Popen[AnyStr]") -> "Iterator[subprocess.Popen[AnyStr]]":
    """Kill a program when its test is over, also if that failed: it may be stopped, or never end by itself."""
    with program:
        try:
            yield program
        finally:
            program.kill()


class Holder(subprocess.Popen[bytes]):
    """gpu-hold behind the hook: holds memory until its stdin ends, or until a test that uses it has failed.

    Args:
        folder: of the container.
        sizes: what it allocates, one after the other.
    """

    def __init__(self, folder: Path, *sizes: str) -> None:
        environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver", "LD_PRELOAD": f"{folder}/libconvgpu.so"}
        command = [str(DRIVER / "gpu-hold"), "--wait-for-stdin", *sizes]
        super().__init__(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def __exit__(self, kind, error, traceback) -> None:
        """End it; a stopped one would never see the end of its stdin, and the failed test would wait for ever."""
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, traceback)
