"""The table `settings`: what was chosen or noted while a scheduler ran, by name."""

from typing import Final

from convgpu.daemon.storage.transactions import Database
from convgpu.daemon.storage.write_queue import Row

TAKEN_OFF: Final = "taken_off"
"""Containers that were ever suspended with their contexts: what the driver has taken off is counted by nobody."""


EXPORTED: Final = "exported"
"""What processes exported and left, as far as the kernel still has it: nothing after a boot."""


class SettingTable:
    """Texts by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> str | None:
        """Return a setting, None when there is none."""
        found = self._database.rows("SELECT value FROM settings WHERE name = ?", (name,))
        return str(found[0][0]) if found else None

    def names(self, name: str) -> list[str]:
        """Return a setting that is a list of volumes, whose names have no spaces."""
        return list(filter(None, (self.get(name) or "").split(" ")))

    def set(self, name: str, value: str | None) -> None:
        """Keep a setting; None forgets it.

        Raises:
            DatabaseError: nothing has changed.
        """
        with self._database.transaction() as execute:
            if value is None:
                execute("DELETE FROM settings WHERE name = ?", (name,))
            else:
                execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def forget(self, name: str) -> None:
        """Forget a setting at once; when the disk does not take that, as soon as it does."""
        self._database.write_now_or_soon(Row("DELETE FROM settings WHERE name = ?", (name,), name))

    def note(self, name: str, value: str) -> None:
        """Keep a setting at once; when the disk does not take that, as soon as it does."""
        row = Row("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value), name)
        self._database.write_now_or_soon(row)
