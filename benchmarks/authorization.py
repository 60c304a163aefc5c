"""What authorization costs a call of the Engine's API that is not about GPUs; on an Engine of its own."""

import os
import shutil
import socket
import statistics
import sys
import time

import _test_folders  # noqa: F401 - for the imports below
from _report import ROOT, Figure, at_most, report

TURNS = 10
CALLS = 200
BUILT = ROOT / "build/plugin"


def ping(path: str, calls: int) -> list[float]:
    """Seconds of each of `calls` calls of /_ping over one connection."""
    took = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        for _ in range(calls):
            start = time.perf_counter()
            connection.sendall(b"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n")
            answer = b""
            while not answer.endswith(b"OK"):
                answer += connection.recv(4096)
            took.append(time.perf_counter() - start)
    return took


def missing() -> str | None:
    """Why this cannot be measured here."""
    if os.geteuid() != 0:
        return "starting a Docker Engine needs root"
    if shutil.which("dockerd") is None or not (BUILT / "VERSION").exists():
        return "no dockerd, or no plugin: `make test` prepares them"
    return None


def main() -> None:
    """Without, with, without, ... in one run."""
    if reason := missing():
        sys.exit(f"authorization: NOT RUN: {reason}")
    from docker_engine import Engine  # noqa: PLC0415 - of the tests
    from host_state import leave_hosts_network  # noqa: PLC0415 - of the tests

    leave_hosts_network()
    engine = Engine()
    try:
        path = f"{engine.directory}/docker.sock"
        engine("plugin", "create", "convgpu", str(BUILT))
        engine("plugin", "set", "convgpu", *engine.settings_of_plugins())
        engine("plugin", "enable", "convgpu")
        without, with_it = [], []
        for _ in range(TURNS):
            for names, rows in (([], without), (["convgpu"], with_it)):
                engine.configure({"authorization-plugins": names})
                ping(path, 20)
                rows.extend(ping(path, CALLS))
        engine.configure({"authorization-plugins": []})
    finally:
        engine.close()
    bare, asked = statistics.median(without) * 1e3, statistics.median(with_it) * 1e3
    figures = [
        Figure("/_ping without authorization, p50", bare, "ms"),
        at_most("/_ping through authorization, p50", asked, "ms", 1.0),
        Figure("/_ping through authorization, p99", statistics.quantiles(with_it, n=100)[98] * 1e3, "ms"),
        Figure("added by the two calls of the plugin, p50", asked - bare, "ms"),
    ]
    report("authorization", figures)


if __name__ == "__main__":
    main()
