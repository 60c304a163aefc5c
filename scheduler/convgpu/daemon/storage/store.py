"""All tables of one scheduler (docs/architecture.md, Database; docs/decisions/0012)."""

import logging
from collections.abc import Callable
from pathlib import Path

from convgpu.daemon.storage.devices import DeviceTable
from convgpu.daemon.storage.sessions import SessionTable
from convgpu.daemon.storage.settings import EXPORTED, SettingTable
from convgpu.daemon.storage.transactions import Database
from convgpu.daemon.storage.volumes import VolumeTable

log = logging.getLogger(__name__)


class Store:
    """The database `state.db` of one scheduler, by tables. The history is a table too: `history.History`.

    Args:
        directory: of the scheduler.
        boot: identifies this run of the kernel: what an earlier one left of processes is void, as none survived.
        defer: `loop.call_later`, or whatever calls back after that many seconds.

    Raises:
        OSError: the directory cannot be written.
    """

    def __init__(self, directory: Path, boot: str, defer: Callable[[float, Callable[[], None]], object]) -> None:
        self.database = Database(directory / "state.db", defer)
        self.settings = SettingTable(self.database)
        self._begin_boot(boot)
        self.volumes = VolumeTable(self.database)
        self.devices = DeviceTable(self.database)
        self.sessions = SessionTable(self.database, self.settings)

    def _begin_boot(self, boot: str) -> None:
        if self.settings.get("boot") == boot:
            return
        with self.database.transaction() as execute:
            execute("DELETE FROM sessions", ())
            execute("DELETE FROM mounts", ())
            execute("DELETE FROM settings WHERE name = ?", (EXPORTED,))
            execute("DELETE FROM device_memory", ())  # the driver may be another version now, and take more
            if execute("UPDATE containers SET state = 'ended' WHERE state = 'running'", ()).rowcount:
                log.info("the machine was started anew: containers that were mounted before have ended")
            execute("INSERT OR REPLACE INTO settings VALUES ('boot', ?)", (boot,))

    @property
    def trouble(self) -> str:
        """Why the database cannot be written now, empty when it can."""
        return self.database.trouble

    async def durable(self) -> None:
        """Return when everything that was committed survives a power loss. Raises OSError: the disk fails."""
        await self.database.durable()

    def close(self) -> None:
        """Write what is queued, and leave one file."""
        self.database.close()
