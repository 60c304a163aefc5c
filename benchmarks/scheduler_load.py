"""What the scheduler costs: CPU with idle containers, memory with many, and decisions through the real daemon."""

import os
import socket
import statistics
import tempfile
import time
from pathlib import Path

import _test_folders  # noqa: F401 - for the imports below
from _report import Figure, at_most, percentile, report
from daemon import Daemon, running_daemon

from convgpu.protocol import messages as m
from convgpu.protocol.messages import Message, pack
from convgpu.protocol.stream import MessageStream

IDLE, MANY, DEVICES = 100, 1000, 8
WATCHED = float(os.environ.get("CONVGPU_BENCH_SECONDS", "20"))
QUESTIONS = 2000
MIB = 1 << 20


class Client:
    """One process of a container, by its connection alone: the scheduler knows processes by container and pid."""

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_PATH)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"/proc/self/fd/{descriptor}/scheduler.sock")
        os.close(descriptor)
        self._stream = MessageStream()
        self._socket.sendall(pack(m.Hello(os.getpid(), "bench", "", ()), 1))
        _data, [page], _flags, _address = socket.recv_fds(self._socket, 65536, 1)
        os.close(page)

    def ask(self, message: Message) -> Message:
        """Send and wait for the answer."""
        self._socket.sendall(pack(message, 1))
        while True:
            answers = self._stream.receive(self._socket.recv(65536))
            if answers:
                return answers[0][1]


def cpu_seconds(daemon: Daemon) -> float:
    """CPU time of the daemon so far."""
    assert daemon.process is not None
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(daemon: Daemon) -> float:
    """Resident memory of the daemon in MiB."""
    assert daemon.process is not None
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def connected(daemon: Daemon, first: int, last: int) -> list[Client]:
    """Containers with a device and a process each, which holds a little."""
    clients = [Client(daemon.container(f"c{n}", memory="2g", gpus=str(n % DEVICES))) for n in range(first, last)]
    for client in clients:
        client.ask(m.Allocate(0, MIB, "cuMemAlloc"))
    return clients


def main() -> None:
    """One daemon with simulated devices, more and more containers."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_daemon(Path(scratch) / "d", "simulated:" + ",".join(["140GiB"] * DEVICES)) as daemon,
    ):
        clients = connected(daemon, 0, IDLE)
        before, begun = cpu_seconds(daemon), time.monotonic()
        time.sleep(WATCHED)
        share = (cpu_seconds(daemon) - before) / (time.monotonic() - begun) * 100
        clients += connected(daemon, IDLE, MANY)
        memory = resident(daemon)
        taken = []
        for number in range(QUESTIONS):
            start = time.perf_counter()
            clients[number % MANY].ask(m.Allocate(0, MIB, "cuMemAlloc"))
            taken.append((time.perf_counter() - start) * 1e3)
    report(
        "scheduler_load",
        [
            at_most(f"CPU of a core with {IDLE} idle containers on {DEVICES} devices, audit every 2 s", share, "%", 1),
            at_most(f"resident memory with {MANY} connected containers", memory, "MiB", 100),
            Figure(f"an allocation asked of the daemon, {MANY} containers, p50", statistics.median(taken), "ms"),
            at_most("the same, p99", percentile(taken, 99), "ms", 1),
        ],
    )


if __name__ == "__main__":
    main()
