"""The cleaning up behind the demonstration, with a `docker run` that is a plain process."""

import io
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from convgpu.cli.demo.backend import DemoProcess
from convgpu.cli.demo.container_backend import ContainerBackend
from convgpu.cli.demo.scenario import DemoContainer


def test_a_container_that_is_only_being_made_is_removed_once_it_is_there() -> None:
    program = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read(1)"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    keeps_it_alive = process.stdin
    process.stdin = None  # as with a container that does not stay: only its container's end ends it
    attempts: list[list[str]] = []

    def remove(names: list[str]) -> None:
        attempts.append(names)
        if len(attempts) == 2:  # the first found no container
            keeps_it_alive.close()

    backend: Any = ContainerBackend.__new__(ContainerBackend)
    backend._engine = SimpleNamespace(remove_containers=remove)
    backend._containers = {"demo-a": DemoContainer("A", 1, 1, 0.0, 0)}
    running: Any = DemoProcess.__new__(DemoProcess)
    running.process, running._output = process, io.BytesIO()
    backend._running = {"A": running}
    backend.__exit__()
    process.stdout.close()
    assert process.returncode == 0
    assert attempts == [["demo-a"]] * 3
