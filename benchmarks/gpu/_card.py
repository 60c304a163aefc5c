"""What the benchmarks on a card share: the program, the daemon, the card and how a process is started."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # the tables, and by _test_folders the daemon of the tests

import _test_folders  # noqa: E402, F401 - by the path above
from _report import at_most, report  # noqa: E402
from daemon import Daemon, running_daemon, wait_until  # noqa: E402

__all__ = ["GIB", "Bench", "at_most", "bench", "report", "wait_until"]

GIB = 1 << 30
DEVICES = os.environ.get("CONVGPU_DEVICES", "nvml")


@dataclass
class Bench:
    """A running daemon and the program. `total`: bytes of the card; `containers`: folders by name."""

    program: Path
    folder: Path
    daemon: Daemon = field(init=False)
    watcher: "subprocess.Popen[str] | None" = None
    total: int = 0
    containers: dict[str, Path] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Is it a rehearsal, without a card?"""
        return DEVICES != "nvml"

    def environment(self, container: Path | None) -> dict[str, str]:
        """Return the environment of a process: hooked in a container's folder, or not (None)."""
        environment = dict(os.environ)
        if self.simulated:
            environment["LD_LIBRARY_PATH"] = str(self.folder / "driver")
        if container is not None:
            environment["LD_PRELOAD"] = str(container / "libconvgpu.so")
        return environment

    def run(self, container: Path | None, *words: object) -> str:
        """Return what the program says."""
        return self.run_command(container, [str(self.program), *map(str, words)])

    def run_command(self, container: Path | None, command: list[str]) -> str:
        """Return what another program says."""
        return subprocess.check_output(
            command, env=self.environment(container), text=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def start(self, container: Path | None, *words: object) -> "subprocess.Popen[str]":
        """Start the program with its stdin and stdout piped."""
        command = [str(self.program), *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment(container), stdin=pipe, stdout=pipe, text=True)


@contextmanager
def bench(*, watched: bool = False) -> Iterator[Bench]:
    """Compile the program and start a daemon for the card (or, by CONVGPU_DEVICES, for a simulated one).

    `watched`: with `card watch`, started before the daemon, which takes memory in use at its start for external memory.
    """
    with TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        program = folder / "card"
        source = Path(__file__).parent / "src/card.c"
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, source, "-ldl"], check=True)
        running = Bench(program, folder / "d")
        if watched and not running.simulated:
            running.watcher = running.start(None, "watch")
            assert running.watcher.stdout is not None
            running.watcher.stdout.readline()
        running.daemon = stack.enter_context(running_daemon(running.folder, DEVICES))
        if watched and running.watcher is None:
            running.watcher = running.start(None, "watch")
        [device] = running.daemon.admin.request("devices")["devices"]
        running.total = device["total"]
        print(f"{device['name']}: {device['total'] >> 20} MiB, {device['capacity'] >> 20} MiB to hand out", flush=True)
        yield running
