"""The doctor's proof of a suspension: its probe under the hook, on the simulated driver, without an Engine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built import build_driver, build_hook, build_porter
from daemon import Daemon, running_daemon

from convgpu.cli.connect.scheduler import DaemonTransport, Scheduler
from convgpu.cli.doctor import probe
from convgpu.cli.doctor.containers import ProbeFailed
from convgpu.cli.doctor.suspension import SIZE, _compared, prove_suspension

PROBE = Path(probe.__file__)


class Processes:
    """Probes as processes with volumes, in place of containers."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, memory: str, *words: str, suspend: str | None = None) -> str:
        folder = self._daemon.container(name, memory=memory, suspend=suspend or "no")
        environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver", "LD_PRELOAD": f"{folder}/libconvgpu.so"}
        with (self._daemon.directory / name).open("wb") as said:
            command = [sys.executable, "-I", "-S", "-c", PROBE.read_text(), *words]
            self._running[name] = subprocess.Popen(command, env=environment, stdout=said)
        return name

    def reports(self, container: str) -> list[dict[str, Any]]:
        lines = (self._daemon.directory / container).read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def volume(self, container: str) -> str:
        return container

    def remove(self, container: str) -> None:
        process = self._running.pop(container)
        process.kill()
        process.wait()

    def close(self) -> None:
        for name in list(self._running):
            self.remove(name)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    build_hook()
    build_driver()
    build_porter()
    with running_daemon(tmp_path / "d", "simulated:4GiB", "--host-memory=1g") as running:
        yield running


def test_memory_of_a_suspended_program_leaves_and_comes_back_as_it_was(daemon: Daemon) -> None:
    scheduler, processes = Scheduler(DaemonTransport(daemon.directory)), Processes(daemon)
    try:
        finding = prove_suspension(processes, scheduler, scheduler.devices().devices[0])
    finally:
        processes.close()
    assert (finding.check, finding.state) == ("suspend", "ok"), finding
    assert finding.seen.startswith(f"{SIZE >> 20}MiB went to the host in ")


def test_memory_that_came_back_otherwise_is_a_failure() -> None:
    with pytest.raises(ProbeFailed, match="not what it was"):
        _compared([{"event": "compared", "right": True}, {"event": "compared", "right": False}])
