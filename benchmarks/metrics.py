"""`/metrics` with 1,000 containers, from the plugin's own server with the real scheduler behind it."""

import http.client
import socket
import statistics
import tempfile
import time
from pathlib import Path

import _test_folders  # noqa: F401 - for the imports below
from _report import Figure, at_most, percentile, report
from page_world import house

CONTAINERS, TURNS = 1000, 30


def ask(path: Path) -> tuple[float, bytes]:
    """Milliseconds of one question, connection included as for Prometheus' proxy, and the answer."""
    start = time.perf_counter()
    connection = http.client.HTTPConnection("plugin")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", "/metrics")
    body = connection.getresponse().read()
    connection.close()
    return (time.perf_counter() - start) * 1e3, body


def measure(devices: int, every: int = 10, size: int = 8 << 30) -> tuple[list[float], int]:
    """Milliseconds of each question, and bytes of an answer.

    Args:
        devices: on which each container has a limit.
        every: so many containers, one has a process.
        size: that it asks for; it holds or waits.
    """
    sizes = ",".join(["simulated:80GiB", *["80GiB"] * (devices - 1)])
    with tempfile.TemporaryDirectory() as scratch, house(Path(scratch), sizes) as built:
        built.stop_dashboard()
        for number in range(CONTAINERS):
            built.container(f"job-{number}", 8 << 30)
            if number % every == 0:
                built.process(f"job-{number}").allocate(size, number // every % devices)
        ask(built.settings.socket)
        asked = [ask(built.settings.socket) for _ in range(TURNS)]
    assert asked[-1][1].count(b"convgpu_container_limit_bytes{") >= CONTAINERS // every
    return [one for one, _ in asked], len(asked[-1][1])


def main() -> None:
    """With a limit on one device, and on each of eight; with a process in each tenth container, and in each."""
    one, size = measure(1)
    eight, _ = measure(8)
    all_run, all_size = measure(1, every=1, size=64 << 20)
    figures = [
        at_most(f"/metrics with {CONTAINERS} containers, p50", statistics.median(one), "ms", 50),
        Figure("the same, p90", percentile(one, 90), "ms"),
        Figure("the same with limits on eight devices each, p50", statistics.median(eight), "ms"),
        Figure("the same with a process in each, p50", statistics.median(all_run), "ms"),
        Figure("size of the answer, with a process in each tenth", size / 1024, "KiB"),
        Figure("size of the answer, with a process in each", all_size / 1024, "KiB"),
    ]
    report("metrics", figures)


if __name__ == "__main__":
    main()
