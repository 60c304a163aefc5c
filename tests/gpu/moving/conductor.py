"""A scheduler that moves memory when it is told to, with the real hook and the real porter: no decisions, no ledger.

So it shows what the mechanism does and costs on a card, for tests and for `benchmarks/gpu/residency.py`.
"""

import contextlib
import os
import queue
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from line_program import LineProgram

from convgpu.daemon.residency.pool_files import PoolFiles
from convgpu.daemon.system.procfs import start_time
from convgpu.daemon.transport.shared_page import PAGE_SIZE, Page, PageLibrary
from convgpu.protocol import messages as m
from convgpu.protocol.residency import messages as r
from convgpu.protocol.residency import porter as p
from convgpu.protocol.stream import MessageStream
from convgpu.protocol.wire import Outcome, PageFlag

ROOT = Path(__file__).resolve().parents[3]
HOOK = ROOT / "hook/build"
PORTER = Path(os.environ.get("CONVGPU_PORTER", ROOT / "porter/build/convgpu-porter"))
HOST_MEMORY = Path("/dev/shm")
ORDER = 1 << 63
DEADLINE = 10_000  # milliseconds in which a program has to drain
TIMEOUT = 120.0
MOVE_TIMEOUT = 20.0
HEADROOM = 1 << 50
EVERYTHING = 1 << 50
QUIET = 1.5  # seconds without a report after which all has moved
T = TypeVar("T")


@dataclass
class Timed:
    """What a move took: seconds from the order until the last byte was told, and of it until the gate was closed."""

    seconds: float
    drained: float


@dataclass
class Member(LineProgram):
    """One hooked process: its connection, and what it told."""

    conductor: "Conductor"
    connection: socket.socket
    process: "subprocess.Popen[str]"
    page: Page | None = None
    epoch: int = 0
    out: int = 0
    told: "queue.SimpleQueue[m.Message]" = field(default_factory=queue.SimpleQueue)

    def send(self, message: m.Message, request: int) -> None:
        self.connection.sendall(m.pack(message, request))

    def order(self, message: m.Message) -> None:
        self.conductor.orders += 1
        self.send(message, ORDER | self.conductor.orders)

    def wait_for(self, kind: type[T]) -> T:
        """Return the next message of that kind; others are dropped.

        Raises:
            queue.Empty: nothing is told any more. A process that the porter had no room for tells less than was asked.
        """
        while True:
            message = self.told.get(timeout=MOVE_TIMEOUT)
            if isinstance(message, kind):
                return message

    def stop(self) -> float:
        """Close the gate; return the seconds that it took."""
        begin = time.perf_counter()
        self.epoch += 1
        self.order(r.Stop(self.epoch, DEADLINE))
        stopped = self.wait_for(r.Stopped)
        assert stopped.outcome == Outcome.DRAINED, stopped
        return time.perf_counter() - begin

    def suspend(self, size: int) -> Timed:
        """Stop it and take `size` bytes off the device."""
        begin = time.perf_counter()
        drained = self.stop()
        self.order(r.Evict(self.epoch, 0, size))
        gone = 0
        while gone < size:
            gone += self.wait_for(r.Evicted).size
        self.out += gone
        return Timed(time.perf_counter() - begin, drained)

    def suspend_all(self, at_least: int = 0) -> int:
        """Stop it, and take all that can move off the device; return how many bytes that was.

        Nothing says that all has moved: it has when nothing more comes for a while after `at_least` bytes.
        """
        self.stop()
        self.order(r.Evict(self.epoch, 0, EVERYTHING))
        gone = 0
        while True:
            try:
                message = self.told.get(timeout=QUIET if gone >= at_least else TIMEOUT)
            except queue.Empty:
                break
            gone += message.size if isinstance(message, r.Evicted) else 0
        self.out += gone
        return gone

    def resume(self) -> Timed:
        """Bring all of it back, and open the gate."""
        begin = time.perf_counter()
        self.order(r.Restore(self.epoch, 0, self.out))
        while self.out > 0:
            restored = self.wait_for(r.Restored)
            assert restored.refused == 0, restored
            self.out -= restored.size
        self.order(r.Go(self.epoch))
        return Timed(time.perf_counter() - begin, 0.0)

    def close(self) -> None:
        """End it however it is."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> int:
        """End the program; return its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=TIMEOUT)


class Conductor:
    """Listens beside copies of the hook in `folder`, each container of a folder of its own.

    `driver`: the folder of a simulated driver, None on a card.
    """

    def __init__(self, folder: Path, uuid: str, total: int, driver: Path | None, pool: int) -> None:
        self.folder, self.total, self._driver = folder, total, driver
        self._uuid = UUID(uuid.removeprefix("GPU-")).bytes
        self._library = PageLibrary(HOOK / "libconvgpu-page.so")
        self._lock = threading.Lock()
        self._pooled = threading.Event()
        self._members: list[Member] = []
        self._threads: list[threading.Thread] = []
        self.orders = self._sessions = self.pool_error = 0
        self._start_porter(pool)

    def _start_porter(self, pool: int) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pool = HOST_MEMORY / f"convgpu-benchmark-{os.getpid()}"
        command = [str(PORTER), f"--control={theirs.fileno()}", f"--pool={self._pool}"]
        if self._driver is not None:
            command.append(f"--driver={self._driver / 'libcuda.so.1'}")
        with theirs:
            self._porter = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._control.send(p.pack_pool(pool))
        self._reader = threading.Thread(target=self._read_reports, args=(pool,), daemon=True)
        self._reader.start()

    def _read_reports(self, pool: int) -> None:
        while frame := self._control.recv(4096):
            report = p.unpack_report(frame)
            if isinstance(report, p.Pooled) and (report.size >= pool or report.error):
                self.pool_error = report.error
                self._pooled.set()

    def wait_for_pool(self) -> float:
        """Wait until the host's memory is pinned, which begins with the first process; return the seconds."""
        begin = time.perf_counter()
        assert self._pooled.wait(TIMEOUT), "the porter's pool is not there"
        assert self.pool_error == 0, f"the pool cannot be had: error {self.pool_error}"
        return time.perf_counter() - begin

    def environment(self, folder: Path | None) -> dict[str, str]:
        environment = dict(os.environ)
        if self._driver is not None:
            environment["LD_LIBRARY_PATH"] = str(self._driver)
        if folder is not None:
            environment["LD_PRELOAD"] = str(folder / "libconvgpu.so")
        return environment

    def start(self, name: str, *command: object, elastic: bool = True, cwd: Path | None = None) -> Member:
        """Start a program behind the hook, and give it all that it asks for."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        shutil.copy(HOOK / "libconvgpu.so", folder)
        path = folder / "scheduler.sock"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(TIMEOUT)
        process = self.spawn(folder, *command, cwd=cwd)
        with listener:
            connection = listener.accept()[0]
        member = Member(self, connection, process)
        ready = threading.Event()
        self._members.append(member)
        self._threads.append(threading.Thread(target=self._serve, args=(member, elastic, ready), daemon=True))
        self._threads[-1].start()
        assert ready.wait(TIMEOUT)
        return member

    def spawn(self, folder: Path | None, *command: object, cwd: Path | None = None) -> "subprocess.Popen[str]":
        """Start a program, hooked in the folder or not (None), with its stdin and stdout piped."""
        pipe = subprocess.PIPE
        words = [str(word) for word in command]
        return subprocess.Popen(words, env=self.environment(folder), stdin=pipe, stdout=pipe, text=True, cwd=cwd)

    def _serve(self, member: Member, elastic: bool, ready: threading.Event) -> None:
        stream = MessageStream()
        with member.connection, contextlib.suppress(OSError):
            while data := member.connection.recv(65536):
                for request, message in stream.receive(data):
                    self._answer(member, request, message, elastic)
                    if isinstance(message, r.Able if elastic else m.Hello):
                        ready.set()

    def _answer(self, member: Member, request: int, message: m.Message, elastic: bool) -> None:
        match message:
            case m.Hello():
                member.page = Page(self._library, 1, PageFlag.CHOSEN | (PageFlag.ELASTIC if elastic else 0))
                member.page.lease(0, HEADROOM)
                frame = m.pack(m.Welcome(PAGE_SIZE, (m.DeviceRow(self._uuid, self.total, 0),)), request)
                socket.send_fds(member.connection, [frame], [member.page.descriptor])
                member.page.close_descriptor()
            case r.Able():
                self._carrier(member)
            case m.Allocate():
                member.send(m.Accepted(message.size, 0), request)
            case m.Context():
                member.send(m.ContextSize(0), request)
            case m.Query():
                member.send(m.Usage(self.total, 0, 0), request)
            case _:
                member.told.put(message)

    def _carrier(self, member: Member) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = member.process.pid
        pidfd = os.pidfd_open(pid)
        with self._lock, ours, theirs:
            self._sessions += 1
            self.orders += 1
            frame = p.pack_session(self._sessions, pid, start_time(pid), 1 << 62, (self._uuid,))
            socket.send_fds(self._control, [frame], [theirs.fileno(), pidfd])
            socket.send_fds(member.connection, [m.pack(r.Carrier(p.VERSION), ORDER | self.orders)], [ours.fileno()])
        os.close(pidfd)

    def close(self) -> None:
        """End the programs and the porter; its pool goes too."""
        for member in self._members:
            member.close()
        for thread in self._threads:
            thread.join(TIMEOUT)
        self._control.shutdown(socket.SHUT_RDWR)
        self._porter.wait(timeout=TIMEOUT)
        self._reader.join(TIMEOUT)
        self._control.close()
        for file in (self._pool, PoolFiles(self._pool).index):
            file.unlink(missing_ok=True)
