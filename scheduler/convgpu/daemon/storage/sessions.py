"""The table `sessions`: which processes are connected, so that the next scheduler knows for whom to wait."""

from typing import Final

from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.settings import SettingTable
from convgpu.daemon.storage.transactions import Database
from convgpu.daemon.storage.write_queue import Row

_COMPLETE: Final = "complete"


class SessionTable:
    """The processes that may hold memory.

    Attributes:
        complete: whether every process that may hold memory is in the table; at first, as an earlier scheduler left it.
    """

    def __init__(self, database: Database, settings: SettingTable) -> None:
        self._database = database
        self._settings = settings
        self.complete = settings.get(_COMPLETE) is not None

    def all(self) -> list[PreviousSession]:
        """Return the processes that were connected."""
        return [PreviousSession(*row) for row in self._database.rows("SELECT * FROM sessions")]

    def add(self, process: PreviousSession) -> None:
        """Keep a process before it gets any memory; as soon as the disk takes it."""
        row = (process.pid, process.started, process.container, process.program)
        self._database.write_now_or_soon(Row("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", row, process))

    def drop(self, process: PreviousSession) -> None:
        """Forget a process. It may connect again at once, so this is committed at once if the disk takes it."""
        row = (process.pid, process.started, process.container)
        statement = "DELETE FROM sessions WHERE pid = ? AND started = ? AND container = ?"
        self._database.write_now_or_soon(Row(statement, row, process))

    def mark_complete(self) -> None:
        """Note that from now on every process is in the table. Raises DatabaseError: nothing has changed."""
        if not self.complete:
            self._settings.set(_COMPLETE, "yes")
            self.complete = True

    def mark_incomplete(self) -> None:
        """Note that a process cannot be in the table: the next scheduler has to wait without knowing for whom."""
        if self.complete:
            self.complete = False
            self._settings.forget(_COMPLETE)
