"""A socket round trip to the scheduler: what an allocation costs that the headroom does not hold."""

import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import _test_folders  # noqa: F401 - for the imports below
from _report import Figure, percentile, report
from daemon import Process, running_daemon

from convgpu.protocol import messages as m

TURNS, COUNT = 7, 500


def times(action: Callable[[], object]) -> list[float]:
    """Microseconds of each of COUNT actions."""
    result = []
    for _ in range(COUNT):
        start = time.perf_counter()
        action()
        result.append((time.perf_counter() - start) * 1e6)
    return result


def echo(sock: socket.socket) -> None:
    """The bare minimum that a Python peer costs."""
    while data := sock.recv(4096):
        sock.sendall(data)


def main() -> None:
    """In turns: a thread that echoes, a question, an allocation with its return."""
    ours, theirs = socket.socketpair()
    threading.Thread(target=echo, args=(theirs,), daemon=True).start()

    def bare() -> None:
        ours.sendall(b"x" * 64)
        ours.recv(4096)

    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d") as daemon:
        folder = daemon.container("bench", memory="12g")
        process, sibling = Process(folder), Process(folder)
        process.hello()
        sibling.hello()

        def allocate() -> None:
            sibling.ask(m.Allocate(0, 1 << 20, "cuMemAlloc"))  # takes the idle lease of `process` back
            process.ask(m.Allocate(0, 1 << 20, "cuMemAlloc"))
            process.give(1 << 20)
            sibling.give(1 << 20)

        rows: dict[str, list[float]] = {"bare": [], "query": [], "allocate": []}
        for _ in range(TURNS):
            rows["bare"] += times(bare)
            rows["query"] += times(lambda: process.ask(m.Query(0)))
            rows["allocate"] += [one / 2 for one in times(allocate)]
    bare_p50 = statistics.median(rows["bare"])
    figures = [
        Figure("echo by a Python thread, p50", bare_p50, "us"),
        Figure("question and answer, p50", statistics.median(rows["query"]), "us"),
        Figure("question and answer, p50, against the echo", statistics.median(rows["query"]) / bare_p50, ""),
        Figure("allocation that takes lease back, p50", statistics.median(rows["allocate"]), "us"),
        Figure("allocation that takes lease back, p99", percentile(rows["allocate"], 99), "us"),
    ]
    report("round_trip", figures)


if __name__ == "__main__":
    main()
