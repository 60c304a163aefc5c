"""The whole house behind the page: convgpud with simulated devices, the plugin's server, `convgpu dashboard`."""

import contextlib
import os
import signal
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from daemon import GIB, Daemon, Process, running_daemon, wait_until
from preloaded import Forked, Template

from convgpu.cli.connect.quick_http import QuickHttp
from convgpu.plugin.__main__ import _commands
from convgpu.plugin.settings import Settings

MIB = 1 << 20
SERVER = Template("gunicorn.app.wsgiapp:run", "convgpu.plugin.server.wsgi", "convgpu.plugin.server.worker")
DASHBOARD = Template("convgpu.cli.__main__:start", "convgpu.cli.serve.dashboard")


class House:
    """What runs, and what the tests let happen in it."""

    def __init__(self, directory: Path, daemon: Daemon) -> None:
        self.directory = directory
        self.daemon = daemon
        self.settings = Settings(directory=daemon.directory, socket=directory / "plugin.sock")
        self.server: Forked | None = None
        self.dashboard: Forked | None = None
        self.url = ""
        self.folders: dict[str, Path] = {}

    def start_server(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            environment = {**os.environ, **self.settings.environment()}
            words = _commands((), has_readers=False)["server"][3:]  # behind `python -m gunicorn`
            self.server = SERVER.start(words, log.fileno(), log.fileno(), env=environment)
        wait_until(self._answers, "the plugin's server answers")

    def start_dashboard(self, *options: str) -> None:
        said = self.directory / "dashboard.log"
        reading, writing = os.pipe()
        with said.open("ab") as log, os.fdopen(writing, "wb") as output:
            words = ["dashboard", "--socket", str(self.settings.socket), *options]
            self.dashboard = DASHBOARD.start(words, output.fileno(), log.fileno())
        with os.fdopen(reading) as printed:
            self.url = printed.readline().strip()
        assert self.url, f"the dashboard did not start: {said.read_text()}"

    def stop_dashboard(self) -> int:
        assert self.dashboard is not None
        self.dashboard.send_signal(signal.SIGINT)
        status = self.dashboard.wait(120)
        self.dashboard = None
        return status

    def stop(self) -> None:
        if self.dashboard is not None:
            self.stop_dashboard()
        if self.server is not None:
            self.server.terminate()
            self.server.wait(120)

    def container(self, name: str, limit: int = 2 * GIB, **options: str) -> None:
        """Create and mount one."""
        self.folders[name] = self.daemon.container(name, memory=f"{limit // MIB}m", **options)

    def process(self, name: str, program: str = "test") -> Process:
        """Connect a process of the container."""
        process = Process(self.folders[name])
        process.hello(program=program)
        return process

    def holder(self, name: str, size: int, limit: int | None = None) -> Process:
        """A container with a process that holds `size` bytes."""
        self.container(name, limit or size)
        process = self.process(name)
        process.answer(process.allocate(size))
        return process

    def _answers(self) -> bool:
        """Say whether it serves; gunicorn's socket is there also when the application cannot be loaded."""
        assert self.server is not None
        if self.server.poll() is not None:
            raise AssertionError(f"the plugin's server ended: {(self.directory / 'server.log').read_text()[-2000:]}")
        try:
            return QuickHttp(self.settings.socket).ask("GET", "/metrics").status == HTTPStatus.OK
        except OSError:
            return False


@contextlib.contextmanager
def house(directory: Path, devices: str = "simulated:16GiB", *options: str) -> Iterator[House]:
    """A house in which everything runs; all of it ends with the block."""
    with running_daemon(directory / "d", devices, *options) as daemon:
        built = House(directory, daemon)
        try:
            built.start_server()
            built.start_dashboard()
            yield built
        finally:
            built.stop()
