"""How long people wait for `convgpu --help`, and for `convgpu ps` with 1,000 containers.

The plugin's own processes run, with 1,000 containers of a simulated device; in place of an Engine stands a socket that
gives the two answers which `ps` needs of one, so that what is measured is ours.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

from _report import ROOT, Figure, at_most, report

from convgpu.client.admin import AdminClient
from convgpu.protocol.requests import CreateVolume

CONTAINERS = 1000
TURNS = 15
PLUGIN = f"bench{os.getpid()}"
SOCKETS = Path("/run/docker/plugins") / PLUGIN  # where an Engine would have it
NAMES = [f"{number:064x}" for number in range(CONTAINERS)]


class Engine(BaseHTTPRequestHandler):
    """Answers as an Engine does."""

    def do_GET(self) -> None:
        """The plugin, or the containers."""
        plugin = {"Enabled": True, "Id": PLUGIN, "Config": {"Interface": {"Socket": "convgpu.sock"}}}
        rows = [
            {"Id": name[::-1], "Names": [f"/job-{name[-4:]}"], "Image": "image", "Mounts": [{"Name": name}]}
            for name in NAMES
        ]
        answer = rows if self.path.startswith("/containers") else plugin | {"Settings": {"Env": []}}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingMixIn, UnixStreamServer):
    """On a UNIX socket."""

    daemon_threads = True

    def get_request(self) -> tuple[object, object]:
        """BaseHTTPRequestHandler wants an address of two."""
        return self.socket.accept()[0], ("engine", 0)


def seconds(*words: str, environment: dict[str, str]) -> float:
    """How long one command takes."""
    command = [Path(sys.executable).parent / "convgpu", *words]
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    took = time.perf_counter() - start
    assert words[0] != "ps" or done.stdout.count(b"\n") > CONTAINERS, done.stdout[:300]
    return took


def start_plugin(directory: Path) -> subprocess.Popen[bytes]:
    """The plugin's processes with their containers."""
    settings = {
        "CONVGPU_DIRECTORY": str(directory),
        "CONVGPU_SOCKET": str(SOCKETS / "convgpu.sock"),
        "CONVGPU_ENGINE": str(directory / "none"),
        "CONVGPU_DEVICES": "simulated:1024GiB",
        "CONVGPU_LIBRARIES": str(ROOT / "hook/build"),
        "CONVGPU_SIMULATED_DRIVER": str(ROOT / "tests/fakes/build"),
        "CONVGPU_LOG": "error",
    }
    log = (directory / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "convgpu.plugin"], env={**os.environ, **settings}, stdout=log, stderr=log
    )
    admin = AdminClient(str(directory / "admin.sock"), timeout=60)
    for name in NAMES:
        admin.ask(CreateVolume(name, {"memory": "1g"}))
    while not (SOCKETS / "convgpu.sock").exists():
        time.sleep(0.05)
    return process


def main() -> None:
    """Each command in turns."""
    if os.geteuid() != 0:
        sys.exit("command_line: NOT RUN: /run/docker/plugins is root's")
    SOCKETS.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="bench", dir="/tmp") as folder:
        directory = Path(folder)
        plugin = start_plugin(directory)
        try:
            with Server(str(directory / "engine.sock"), Engine) as engine:
                threading.Thread(target=engine.serve_forever, daemon=True).start()
                environment = {**os.environ, "DOCKER_HOST": f"unix://{directory}/engine.sock"}
                rows = [
                    (
                        seconds("--help", environment=environment),
                        seconds("ps", environment=environment),
                        seconds("ps", "--json", environment=environment),
                    )
                    for _ in range(TURNS + 1)
                ][1:]
                engine.shutdown()
        finally:
            plugin.terminate()
            plugin.wait()
            shutil.rmtree(SOCKETS)
    help_, ps, data = (statistics.median(column) * 1e3 for column in zip(*rows, strict=True))
    report(
        "command_line",
        [
            at_most("convgpu --help, p50", help_, "ms", 150),
            at_most(f"convgpu ps, {CONTAINERS} containers, p50", ps, "ms", 300),
            Figure("convgpu ps --json, p50", data, "ms"),
        ],
    )


if __name__ == "__main__":
    main()
