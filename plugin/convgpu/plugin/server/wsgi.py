"""What gunicorn serves: the application with the real scheduler behind it."""

import logging
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Final

from convgpu.client.admin import AdminClient
from convgpu.plugin.engine.client import Engine
from convgpu.plugin.engine.container_sync import Listing
from convgpu.plugin.server.app import PluginApp, create_app
from convgpu.plugin.settings import read_settings
from convgpu.protocol.durations import parse_duration

_log: Final = logging.getLogger(__name__)

_UCRED: Final = struct.Struct("=iII")
# Seconds for a question to the scheduler. It may be just starting, and a container that the Engine starts at boot is
# tried once only; but one that is there and says nothing hangs, and meanwhile the Engine holds the container's lock.
# Both are less than the 30 s that the Engine waits, so that the user reads our error and not the Engine's.
_PATIENCE: Final = 15.0
_ANSWER: Final = 5.0
# Seconds that the Engine may take for a list; nobody waits for it.
_LISTING: Final = 10.0


def _end_scheduler(path: Path) -> None:
    """Kill the process that listens on the scheduler's socket; the plugin's first process starts another one."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER)
            connection.connect(str(path))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        os.kill(_UCRED.unpack(credentials)[0], signal.SIGKILL)
    except OSError:
        _log.exception("the scheduler could not be ended")


def create() -> PluginApp:
    """Return the application as the environment's settings describe it."""
    settings = read_settings(os.environ)
    scheduler = AdminClient(str(settings.admin_socket), _PATIENCE, _ANSWER)
    listing = Listing(Engine(settings.engine, _LISTING), scheduler, settings.name, parse_duration(settings.keep))
    listing.start(lambda: _end_scheduler(settings.admin_socket))
    return create_app(scheduler, settings, listing.doubt)
