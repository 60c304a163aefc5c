"""The application that gunicorn serves, with the real scheduler behind it."""

import contextlib
import logging
import os
import signal
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
from convgpu.protocol.layout import LOCK_FILE

_log: Final = logging.getLogger(__name__)

# Seconds for a request to the scheduler, and for its answer once it is connected. A scheduler may be just starting, and
# the Engine tries a container that it starts at boot only once; but one that is connected and silent hangs, and
# meanwhile the Engine holds the container's lock. Both are less than the 30 s that the Engine waits, so that the user
# reads our error and not the Engine's.
_SCHEDULER_TIMEOUT: Final = 15.0
_ANSWER_TIMEOUT: Final = 5.0
# Seconds that the Engine may take for a list; nobody waits for it.
_LIST_TIMEOUT: Final = 10.0


def _end_scheduler(directory: Path) -> None:
    """Kill the process that works in the scheduler's directory; the plugin's first process starts another one.

    It is found by its lock and not by a connection: one that hangs accepts none, and once its queue is full of those
    who gave up, each further `connect` ends with EAGAIN.
    """
    try:
        for holder in _lock_holders(directory / LOCK_FILE):
            os.kill(holder, signal.SIGKILL)
    except OSError:
        _log.exception("the scheduler could not be ended")


def _lock_holders(path: Path) -> list[int]:
    """Return the processes that hold a file's flock, by /proc/locks (proc_locks(5)).

    Raises:
        OSError: the file is not there.
    """
    file = path.stat()
    rows = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    # Who waits for a lock has "->" as the second word. Devices are not compared: btrfs shows others here than stat.
    named = {int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].endswith(f":{file.st_ino}")}
    return [pid for pid in named if pid > 0 and _has_open(pid, file)]


def _has_open(pid: int, file: os.stat_result) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(descriptor.stat(), file):
                return True
    return False


def create() -> PluginApp:
    """Return the application as the environment's settings describe it."""
    settings = read_settings(os.environ)
    scheduler = AdminClient(str(settings.admin_socket), _SCHEDULER_TIMEOUT, _ANSWER_TIMEOUT)
    engine = Engine(settings.engine, _LIST_TIMEOUT)
    driver = full_name(settings.name)
    sync = ContainerSync(engine, scheduler, driver, parse_duration(settings.keep))
    sync.start(lambda: _end_scheduler(settings.directory))
    ContainerNames(Engine(settings.engine, _LIST_TIMEOUT), scheduler, driver).start()
    app = create_app(scheduler, settings, sync.request)
    UnlimitedWatch(scheduler, app.unlimited, app.host_programs).start()
    return app
