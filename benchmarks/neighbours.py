"""What one hostile container costs ten honest ones: their calls of the scheduler, quiet and beside each kind of attack.

The attackers run at the lowest priority, so that the figures show the scheduler's turns and not the kernel's. A p99 is
the median of the p99 of several rounds: where a host holds this machine up for 20 ms, four calls of 400 see it.
"""

import contextlib
import itertools
import mmap
import multiprocessing
import os
import random
import select
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import _test_folders  # noqa: F401 - for the imports below
from _report import Figure, at_most, percentile, report
from daemon import Daemon, running_daemon

from convgpu.protocol import messages as m
from convgpu.protocol.messages import pack
from convgpu.protocol.residency import messages as r
from convgpu.protocol.stream import MessageStream
from convgpu.protocol.wire import AbleFlag, Mover

HONEST, CALLS, PAUSE = 10, 40, 0.01
ROUNDS = 7
SILENT = 1000
GIB, PAGE = 1 << 30, 4096
UUID = bytes(16)
TARGET = 5.0  # ms


def connect(folder: Path, *, blocking: bool = True) -> socket.socket:
    """Return a connection to a container's scheduler. Raises BlockingIOError."""
    descriptor = os.open(folder, os.O_PATH)
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(blocking)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/scheduler.sock")
    except BlockingIOError:
        connection.close()
        raise
    finally:
        os.close(descriptor)
    return connection


def greet(connection: socket.socket, held: tuple[tuple[bytes, int], ...] = ()) -> mmap.mmap:
    """Say HELLO, wait for the answer, and return the page that came with it. Raises ValueError: none came."""
    connection.sendall(pack(m.Hello(os.getpid(), "bench", "", held), 1))
    _data, descriptors, _flags, _address = socket.recv_fds(connection, 65536, 1)
    [descriptor] = descriptors
    try:
        return mmap.mmap(descriptor, PAGE)
    finally:
        os.close(descriptor)


def drain(connection: socket.socket) -> None:
    """Read answers for as long as they come."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass

    threading.Thread(target=read, daemon=True).start()


def repeat(connection: socket.socket, frames: bytes) -> None:
    """Send the same frames without end."""
    drain(connection)
    while True:
        connection.sendall(frames)


def flood(message: m.Message) -> Callable[[Path], None]:
    """Return an attack: a session that sends one message without end."""

    def attack(folder: Path) -> None:
        connection = connect(folder)
        greet(connection)
        repeat(connection, pack(message, 7) * 64)

    return attack


def scribble(folder: Path) -> None:
    """Attack by a session that writes words of all sizes into its page, headroom included, and allocates without end.

    Each answer has the scheduler read what stands there. A thread that only writes would measure the cores that it
    takes: beside one that writes elsewhere calls are as slow.
    """
    connection = connect(folder)
    page = greet(connection)
    drain(connection)
    dice = random.Random(1)  # noqa: S311 - no secret
    words = [[dice.getrandbits(dice.randrange(1, 65)) for _ in range(PAGE // 8)] for _ in range(64)]
    frames = pack(m.Allocate(0, PAGE, "cuMemAlloc"), 7) * 8
    for noise in itertools.cycle([struct.pack(f"={PAGE // 8}Q", *each) for each in words]):
        page[:] = noise
        connection.sendall(frames)


def restless(folder: Path) -> None:
    """Attack by a session whose memory may leave, and that is idle, works, and wants its turn without end."""
    connection = connect(folder)
    greet(connection)
    connection.sendall(pack(r.Able(Mover.VMM, AbleFlag.IDLE), 2))
    repeat(connection, (pack(r.Idle(1), 7) + pack(r.Idle(0), 7) + pack(r.Run(1), 7)) * 21)


def misplaced(folder: Path) -> None:
    """Attack by sessions that come and say that memory of theirs is out, and by states without end."""
    connection = connect(folder)
    greet(connection)
    connection.sendall(pack(r.Able(Mover.VMM), 2))
    repeat(connection, pack(r.State(1, 0, (r.StateRow(UUID, 0, 0, GIB),)), 7) * 64)


def observe(folder: Path) -> None:
    """Attack by a hundred connections that ask for a figure."""
    frame = pack(m.Observe(UUID, "2g"), 7)
    for _ in range(99):
        threading.Thread(target=repeat, args=(connect(folder), frame * 8), daemon=True).start()
    repeat(connect(folder), frame * 8)


def wait(folder: Path) -> None:
    """Attack by a thousand allocations that have to wait."""
    connection = connect(folder)
    greet(connection)
    drain(connection)
    connection.sendall(b"".join(pack(m.Allocate(0, 8 * GIB + n, "cuMemAlloc"), n + 1) for n in range(1000)))
    threading.Event().wait()


def reconnect(folder: Path) -> None:
    """Attack by sessions that come and go, and claim memory."""
    while True:
        with connect(folder) as connection, contextlib.suppress(OSError, ValueError):
            greet(connection, ((UUID, GIB),))


def come_and_go(folder: Path) -> None:
    """Attack by sessions that ask for more than fits, ten times each, and end as soon as they have it."""
    asked = b"".join(pack(m.Allocate(0, 2 * GIB, "cuMemAlloc"), n + 1) for n in range(10))
    while True:
        with connect(folder) as connection, contextlib.suppress(OSError, ValueError):
            greet(connection)
            connection.sendall(asked)
            connection.recv(65536)
            time.sleep(0.1)


def silent(*folders: Path) -> None:
    """Attack by a thousand connections to each of some containers that say nothing, and come again when closed."""
    ends = select.epoll()
    opened: dict[int, tuple[socket.socket, Path]] = {}
    wanted = dict.fromkeys(folders, SILENT)
    while True:
        for folder in folders:
            with contextlib.suppress(BlockingIOError):
                while wanted[folder]:
                    connection = connect(folder, blocking=False)
                    ends.register(connection, select.EPOLLIN)
                    opened[connection.fileno()] = connection, folder
                    wanted[folder] -= 1
        for descriptor, _ in ends.poll(0.001, 256):
            connection, folder = opened.pop(descriptor)
            connection.close()
            wanted[folder] += 1


def nonsense(folder: Path) -> None:
    """Attack by connections that send noise."""
    noise = random.Random(1)  # noqa: S311 - no secret
    while True:
        with connect(folder) as connection, contextlib.suppress(OSError):
            connection.sendall(noise.randbytes(300))


class Attack(NamedTuple):
    """So many processes, each in one of so many containers, or in several if the containers are more."""

    processes: int
    run: Callable[..., None]
    containers: int = 1

    def start(self, folders: list[Path]) -> list[multiprocessing.Process]:
        """Attack by each process from its containers."""
        mine = [folders[n :: self.processes] or [folders[n % len(folders)]] for n in range(self.processes)]
        started = [multiprocessing.Process(target=run_attack, args=(self.run, *own)) for own in mine]
        for process in started:
            process.start()
        return started


REFUSED = flood(m.Allocate(0, 1 << 60, "cuMemAlloc"))
ATTACKS: dict[str, Attack] = {
    "frees that are not": Attack(4, flood(m.Freed(0))),
    "refused allocations": Attack(4, REFUSED),
    "refused allocations, one process in each of 25 containers": Attack(25, REFUSED, containers=25),
    "accepted allocations": Attack(4, flood(m.Allocate(0, PAGE, "cuMemAlloc"))),
    "pages of noise and accepted allocations": Attack(4, scribble),
    "20 processes with 1,000 waiting allocations each": Attack(20, wait),
    "questions": Attack(4, flood(m.Query(0))),
    "contexts to measure": Attack(4, flood(m.Context(0, 1, 1))),
    "100 observers": Attack(1, observe),
    "sessions that come and go": Attack(4, reconnect),
    "500 processes that want what one has": Attack(500, come_and_go),
    "noise": Attack(4, nonsense),
    "1,000 silent connections": Attack(1, silent),
    "1,000 silent connections in each of 36 containers": Attack(3, silent, containers=36),
    "idle and busy": Attack(4, restless),
    "memory that is not out": Attack(4, misplaced),
}


def run_attack(attack: Callable[..., None], *folders: Path) -> None:
    """Attack at the lowest priority, until killed."""
    os.nice(19)
    with contextlib.suppress(OSError):
        attack(*folders)


class Honest:
    """One process of a container, which asks now and then."""

    def __init__(self, folder: Path) -> None:
        self._socket = connect(folder)
        self._stream = MessageStream()
        greet(self._socket)

    def ask(self) -> float:
        """Allocate a little, and return the milliseconds until the answer."""
        begun = time.perf_counter()
        self._socket.sendall(pack(m.Allocate(0, PAGE, "cuMemAlloc"), 1))
        while not self._stream.receive(self._socket.recv(65536)):
            pass
        return (time.perf_counter() - begun) * 1e3


class Calls(NamedTuple):
    """Medians of rounds, in milliseconds."""

    p50: float
    p99: float


def measure(honest: list[Honest]) -> Calls:
    """Time calls, one container after the other."""
    rounds = []
    for _ in range(ROUNDS):
        taken = []
        for _ in range(CALLS):
            for one in honest:
                taken.append(one.ask())
                time.sleep(PAUSE / HONEST)
        rounds.append(taken)
    return Calls(*(statistics.median(percentile(taken, rank) for taken in rounds) for rank in (50, 99)))


def under_attack(daemon: Daemon, name: str, honest: list[Honest]) -> tuple[Calls, float]:
    """Return the calls of honest containers beside an attack, and the seconds of `containers`."""
    attack = ATTACKS[name]
    options = {"suspend": "auto"} if attack.run in (restless, misplaced) else {}
    memory = "3g" if attack.run is come_and_go else "30g"
    number = list(ATTACKS).index(name)
    folders = [
        daemon.container(f"attack{number}-{n}", memory=memory, gpus="0", **options) for n in range(attack.containers)
    ]
    attackers = attack.start(folders)
    time.sleep(2)
    taken = measure(honest)
    begun = time.perf_counter()
    daemon.admin.request("containers")
    listed = time.perf_counter() - begun
    for attacker in attackers:
        attacker.kill()
        attacker.join()
    time.sleep(1)
    return taken, listed


def main() -> None:
    """One daemon, ten honest containers, and one attack after the other, each between two quiet times."""
    chosen = [name for name in ATTACKS if not sys.argv[1:] or any(word in name for word in sys.argv[1:])]
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_daemon(Path(scratch) / "d", "simulated:40GiB", "--host-memory=256m") as daemon,
    ):
        honest = [Honest(daemon.container(f"honest{n}", memory="2g", gpus="0")) for n in range(HONEST)]
        for one in honest:
            one.ask()  # grants the whole limit
        Honest(daemon.container("holder", memory="16g", gpus="0")).ask()
        for name in chosen:
            quiet = measure(honest)
            taken, listed = under_attack(daemon, name, honest)
            figures.append(Figure(f"{name}: p50", taken.p50, "ms"))
            bound = max(TARGET, 2 * quiet.p99)
            figures.append(at_most(f"{name}: p99 (quiet {quiet.p99:.2f} ms)", taken.p99, "ms", bound))
            figures.append(Figure(f"{name}: `containers`", listed * 1e3, "ms"))
    report("neighbours", figures)


if __name__ == "__main__":
    main()
