"""The tables `devices` and `device_memory`: which GPUs there are, which are drained, and their memory figures."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Final

from convgpu.daemon.storage.rows import DeviceMemory
from convgpu.daemon.storage.transactions import Database
from convgpu.daemon.storage.write_queue import Row

_SET_MEMORY: Final = "INSERT OR REPLACE INTO device_memory VALUES (?, ?, ?, ?, ?)"


class DeviceTable:
    """GPUs by their UUIDs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def memory(self) -> dict[str, DeviceMemory]:
        """Return the memory figures that an earlier scheduler left."""
        return {row[0]: DeviceMemory(*row) for row in self._database.rows("SELECT * FROM device_memory")}

    def drained(self) -> set[str]:
        """Return the devices that are drained."""
        return {uuid for (uuid,) in self._database.rows("SELECT uuid FROM devices WHERE drained")}

    def set_all(self, names: Mapping[str, str], memory: Sequence[DeviceMemory]) -> None:
        """Keep which devices there are (UUID to name, in order) and their memory, as soon as the disk takes it."""
        statement = (
            "INSERT INTO devices (uuid, position, name) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET position = excluded.position, name = excluded.name"
        )
        places = enumerate(names.items())
        rows = [Row(statement, (uuid, position, name), ("device", uuid)) for position, (uuid, name) in places]
        self._database.write_all_now_or_soon(
            [*rows, *(Row(_SET_MEMORY, astuple(figures), ("memory", figures.device)) for figures in memory)]
        )

    def set_drained(self, device: str, drained: bool) -> None:
        """Keep whether a device is drained. Raises DatabaseError: nothing has changed."""
        with self._database.transaction() as execute:
            execute("UPDATE devices SET drained = ? WHERE uuid = ?", (int(drained), device))

    def set_memory(self, figures: DeviceMemory) -> None:
        """Keep the memory figures of a device, soon."""
        self._database.later(_SET_MEMORY, astuple(figures), ("memory", figures.device))
