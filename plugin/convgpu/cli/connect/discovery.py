"""Discovery of the scheduler's endpoint: the socket of a plugin in the Engine, or of a daemon in a directory."""

from pathlib import Path
from typing import Final

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.quick_http import QuickHttp
from convgpu.cli.connect.scheduler import DaemonTransport, PluginTransport, Scheduler
from convgpu.cli.connect.unix_http import OpenHttp

_DAEMON_TIMEOUT: Final = 2.0  # seconds for a daemon without Docker, which runs or does not


def open_scheduler(directory: Path | None, driver: str, open_http: OpenHttp = QuickHttp) -> Scheduler:
    """Return the scheduler of the plugin `driver`, or with a directory the one that works there.

    Args:
        directory: of a daemon without Docker.
        driver: the plugin's name in the Engine.
        open_http: the client of the Engine's and the plugin's sockets.
    """
    if directory is not None:
        return Scheduler(DaemonTransport(directory, _DAEMON_TIMEOUT))
    return open_plugin(Engine.connect(open_http).plugin(driver).socket, open_http)


def open_plugin(socket: Path, open_http: OpenHttp = QuickHttp) -> Scheduler:
    """Return the scheduler behind the socket of a plugin."""
    return Scheduler(PluginTransport(open_http(socket)))
