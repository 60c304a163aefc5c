"""Discovery of the scheduler's endpoint: the socket of a plugin in the Engine, or of a daemon in a directory."""

from pathlib import Path
from typing import Final

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.scheduler import DaemonTransport, PluginTransport, Scheduler

_DAEMON_TIMEOUT: Final = 2.0  # seconds for a daemon without Docker, which runs or does not


def open_scheduler(directory: Path | None, driver: str) -> Scheduler:
    """Return the scheduler of the plugin `driver`, or with a directory the one that works there."""
    if directory is not None:
        return Scheduler(DaemonTransport(directory, _DAEMON_TIMEOUT))
    return Scheduler(PluginTransport(Engine.connect().plugin(driver).socket))
