"""Discovery of the scheduler's endpoint: the socket of a plugin in the Engine, or of a daemon in a directory."""

import os
from pathlib import Path
from typing import Final

from convgpu.cli.connect import engine_endpoint
from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.quick_http import QuickHttp
from convgpu.cli.connect.scheduler import DaemonTransport, PluginTransport, Scheduler
from convgpu.cli.connect.unix_http import OpenHttp
from convgpu.protocol.layout import reader_socket

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
    return open_plugin(find_socket(driver, open_http), open_http)


def find_socket(driver: str, open_http: OpenHttp = QuickHttp) -> Path:
    """Return the socket of a plugin: for root its own, which the Engine knows, for others the one for readers."""
    readers = _find_readers(driver) if os.geteuid() != 0 else None
    return readers or Engine.connect(open_http).plugin(driver).socket


def _find_readers(driver: str) -> Path | None:
    socket = engine_endpoint.current().socket
    path = None if socket is None else Path(reader_socket(str(socket.parent), driver))
    return path if path is not None and os.access(path, os.R_OK | os.W_OK) else None


def open_plugin(socket: Path, open_http: OpenHttp = QuickHttp) -> Scheduler:
    """Return the scheduler behind the socket of a plugin."""
    return Scheduler(PluginTransport(open_http(socket)))
