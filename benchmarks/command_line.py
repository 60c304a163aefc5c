"""How long people wait for `convgpu --help`, for `convgpu ps` with 1,000 containers, and for docker in `convgpu run`.

The plugin's own processes run, with 1,000 containers of a simulated device; in place of an Engine stands a socket that
gives the answers which `ps` and `run` need of one, and in place of docker a program that ends at once, so that what is
measured is ours.
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
# As scripts/release/deb.py makes it.
PROGRAM = """#!/usr/bin/python3 -IS
import sys
sys.path += {folders}
from convgpu.cli.entry import start
sys.exit(start())
"""
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
        run = {"Settings": {"Env": ["CONVGPU_DEVICES=simulated:1024GiB"]}, "DockerRootDir": "/var/lib/docker"}
        image = {"GraphDriver": {"Name": "overlay2", "Data": {"UpperDir": "/var/lib/docker/overlay2/1f/diff"}}}
        answer = rows if self.path.startswith("/containers") else plugin | run | image
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Its header Server."""
        return "Docker/20.10.24 (linux)"

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


def start_of(*command: str, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds, and seconds of the processor, of one process until it has ended."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def measure_run(directory: Path, environment: dict[str, str]) -> list[Figure]:
    """`convgpu run` until docker takes its place, against docker alone, in turns."""
    (directory / "convgpu").mkdir()
    (directory / "convgpu/images.json").write_text(json.dumps({PLUGIN: False}))
    docker = directory / "bin/docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    path = f"{docker.parent}:{environment['PATH']}"
    environment = environment | {"PATH": path, "XDG_CACHE_HOME": str(directory)}
    convgpu = Path(sys.executable).parent / "convgpu"
    package = directory / "bin/convgpu"
    package.write_text(PROGRAM.format(folders=[str(ROOT / "plugin"), str(ROOT / "scheduler")]))
    package.chmod(0o755)
    words = ("run", "--gpu-memory", "1g", "--gpu-volume-driver", PLUGIN, "image")
    rows = []
    for _ in range(2 * TURNS + 1):
        alone = start_of(str(docker), environment=environment)
        ours = start_of(str(convgpu), *words, environment=environment)
        packaged = start_of(str(package), *words, environment=environment)
        python = start_of(sys.executable, "-c", "pass", environment=environment)
        rows.append(
            (*(used - docker for each in (ours, packaged) for used, docker in zip(each, alone, strict=True)), *python)
        )
    more, processor, packaged_more, packaged_processor, _, python_alone = (
        statistics.median(column) * 1e3 for column in zip(*rows[1:], strict=True)
    )
    return [
        at_most("convgpu run until docker takes its place, p50", more, "ms", 60),
        at_most("the same, processor time", processor, "ms", 60),
        at_most("the same as the Debian package starts it, p50", packaged_more, "ms", 60),
        at_most("the same, processor time", packaged_processor, "ms", 60),
        Figure("of which Python without any of our modules", python_alone, "ms"),
    ]


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
                starts = measure_run(directory, environment)
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
            *starts,
        ],
    )


if __name__ == "__main__":
    main()
