"""The application that gunicorn serves, with the real scheduler behind it."""

import logging
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Final

from convgpu.client.admin import AdminClient
from convgpu.plugin.engine.client import Engine
from convgpu.plugin.engine.container_names import ContainerNames
from convgpu.plugin.engine.container_sync import ContainerSync, full_name
from convgpu.plugin.engine.unlimited_watch import UnlimitedWatch
from convgpu.plugin.server.app import PluginApp, create_app
from convgpu.plugin.settings import read_settings
from convgpu.protocol.durations import parse_duration

_log: Final = logging.getLogger(__name__)

_UCRED: Final = struct.Struct("=iII")
# Seconds for a request to the scheduler, and for its answer once it is connected. A scheduler may be just starting, and
# the Engine tries a container that it starts at boot only once; but one that is connected and silent hangs, and
# meanwhile the Engine holds the container's lock. Both are less than the 30 s that the Engine waits, so that the user
# reads our error and not the Engine's.
_SCHEDULER_TIMEOUT: Final = 15.0
_ANSWER_TIMEOUT: Final = 5.0
# Seconds that the Engine may take for a list; nobody waits for it.
_LIST_TIMEOUT: Final = 10.0


def _end_scheduler(path: Path) -> None:
    """Kill the process that listens on the scheduler's socket; the plugin's first process starts another one."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_TIMEOUT)
            connection.connect(str(path))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        os.kill(_UCRED.unpack(credentials)[0], signal.SIGKILL)
    except OSError:
        _log.exception("the scheduler could not be ended")


def create() -> PluginApp:
    """Return the application as the environment's settings describe it."""
    settings = read_settings(os.environ)
    scheduler = AdminClient(str(settings.admin_socket), _SCHEDULER_TIMEOUT, _ANSWER_TIMEOUT)
    engine = Engine(settings.engine, _LIST_TIMEOUT)
    driver = full_name(settings.name)
    sync = ContainerSync(engine, scheduler, driver, parse_duration(settings.keep))
    sync.start(lambda: _end_scheduler(settings.admin_socket))
    ContainerNames(Engine(settings.engine, _LIST_TIMEOUT), scheduler, driver).start()
    app = create_app(scheduler, settings, sync.request)
    UnlimitedWatch(scheduler, app.unlimited, app.host_programs).start()
    return app
