"""The tables `containers`, `mounts` and `holdings`: volumes, their mounts, and their limits and figures per device."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final, NamedTuple

import msgspec

from convgpu.core.liveness import Mount
from convgpu.core.placement import Choice, Placement
from convgpu.daemon.storage.rows import Holding, State, Volume
from convgpu.daemon.storage.transactions import Database, Execute
from convgpu.daemon.storage.write_queue import Row
from convgpu.protocol.engine_container import EngineContainer

log = logging.getLogger(__name__)

# A higher limit may have been in force and in use, whatever was written of it last.
_LIMITS: Final = "SELECT device, max(most, coalesce(target, most)) FROM holdings WHERE container = ?"


class _VolumeFact(NamedTuple):
    """The key of a queued fact about a volume, or about its share of one device."""

    kind: str
    volume: str
    device: str = ""


class VolumeTable:
    """Volumes by name. What somebody waits for is committed at once: it raises DatabaseError when nothing changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Volume]:
        """Return the volumes, oldest first; one that makes no sense is left out and logged."""
        volumes = []
        for row in self._database.rows("SELECT * FROM containers ORDER BY created, name"):
            try:
                volumes.append(self._volume(*row))
            except msgspec.ValidationError as error:
                log.error("volume %r of an earlier run makes no sense and is forgotten: %s", row[0], error)
        return volumes

    def _volume(
        self, name: str, options: str, created: float, state: str, since: float, engine: str | None, changed: str | None
    ) -> Volume:
        mounts = self._database.rows("SELECT id, count, since FROM mounts WHERE container = ?", (name,))
        plain = {
            "name": name,
            "options": json.loads(options),
            "created": created,
            "state": state,
            "since": since,
            "mounts": {mount: {"count": count, "since": at} for mount, count, at in mounts},
            "limits": dict(self._database.rows(_LIMITS, (name,))),
            "engine": None if engine is None else json.loads(engine),
            "changed": {} if changed is None else json.loads(changed),
        } | self._placement(name)
        return msgspec.convert(plain, Volume)

    def _placement(self, name: str) -> dict[str, object]:
        rows = self._database.rows("SELECT choice, placed FROM placements WHERE container = ?", (name,))
        columns = zip(("choice", "placed"), rows[0], strict=True) if rows else ()
        return {column: json.loads(text) for column, text in columns if text is not None}

    def targets(self) -> dict[str, dict[str, int]]:
        """Return the lower limits that were asked for and were not in force: container to device to bytes."""
        found: dict[str, dict[str, int]] = {}
        statement = "SELECT container, device, target FROM holdings WHERE target < most"
        for container, device, target in self._database.rows(statement):
            found.setdefault(container, {})[device] = target
        return found

    # -- committed at once -----------------------------------------------------------------------------------

    def add(self, volume: Volume) -> None:
        """Keep a new volume. Raises DatabaseError: nothing has changed."""
        with self._database.transaction() as execute:
            row = (volume.name, json.dumps(volume.options), volume.created, volume.state, volume.since)
            execute("INSERT OR REPLACE INTO containers VALUES (?, ?, ?, ?, ?, NULL, NULL)", row)
            _write_limits(execute, volume.name, volume.limits, volume.since)
            if volume.choice is not None:
                execute("INSERT INTO placements VALUES (?, ?, NULL)", (volume.name, _json(volume.choice)))

    def remove(self, name: str) -> None:
        """Delete a volume with its mounts, limits and sessions. Raises DatabaseError: nothing has changed.

        Queued facts about it are dropped: they would be written to the next volume of the same name.
        """
        with self._database.transaction() as execute:
            execute("DELETE FROM containers WHERE name = ?", (name,))
        self._database.forget_queued(lambda key: isinstance(key, _VolumeFact) and key.volume == name)

    def set_mounts(self, name: str, mounts: Mapping[str, Mount], state: State, since: float) -> None:
        """Replace the mounts of a volume. Raises DatabaseError: nothing has changed."""
        with self._database.transaction() as execute:
            execute("DELETE FROM mounts WHERE container = ?", (name,))
            for mount_id, mount in mounts.items():
                execute("INSERT INTO mounts VALUES (?, ?, ?, ?)", (name, mount_id, mount.count, mount.since))
            execute("UPDATE containers SET state = ?, since = ? WHERE name = ?", (state, since, name))

    def set_limits(self, name: str, limits: Mapping[str, int], now: float) -> None:
        """Keep the limits of a volume. Raises DatabaseError: nothing has changed."""
        with self._database.transaction() as execute:
            _write_limits(execute, name, limits, now)

    def change(self, name: str, targets: Mapping[str, int], changed: Mapping[str, str | None]) -> None:
        """Keep limits that were asked for, and the options that were changed. DatabaseError: nothing has changed."""
        with self._database.transaction() as execute:
            for device, target in targets.items():
                execute("UPDATE holdings SET target = ? WHERE container = ? AND device = ?", (target, name, device))
            execute(
                "UPDATE containers SET changed = ? WHERE name = ?", (json.dumps(changed) if changed else None, name)
            )

    def set_placement(self, name: str, placed: Placement | None) -> None:
        """Keep where a container is placed, before it gets any memory; as soon as the disk takes it."""
        row = (None if placed is None else _json(placed), name)
        key = _VolumeFact("placement", name)
        self._database.write_now_or_soon(Row("UPDATE placements SET placed = ? WHERE container = ?", row, key))

    # -- committed soon --------------------------------------------------------------------------------------

    def set_limit_in_force(self, name: str, device: str, limit: int, target: int | None) -> None:
        """Keep a limit that came into force, soon; a target that is pending is asked for again after a restart."""
        statement = "UPDATE holdings SET most = ?, target = ? WHERE container = ? AND device = ?"
        self._database.later(statement, (limit, target, name, device), _VolumeFact("limit", name, device))

    def set_holding(self, name: str, device: str, holding: Holding) -> None:
        """Keep what a container holds on a device, soon; for people who read the database."""
        statement = "UPDATE holdings SET granted = ?, used = ?, out = ?, fixed = ? WHERE container = ? AND device = ?"
        self._database.later(statement, (*holding, name, device), _VolumeFact("holding", name, device))

    def set_engine(self, name: str, engine: EngineContainer) -> None:
        """Keep how the Engine names a container, soon."""
        row = (json.dumps(asdict(engine)), name)
        self._database.later("UPDATE containers SET engine = ? WHERE name = ?", row, _VolumeFact("engine", name))


def _json(value: Choice | Placement) -> str:
    return msgspec.json.encode(value).decode()


def _write_limits(execute: Execute, name: str, limits: Mapping[str, int], now: float) -> None:
    statement = (
        "INSERT INTO holdings (container, device, most, since) VALUES (?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET most = excluded.most"
    )
    for device, limit in limits.items():
        execute(statement, (name, device, limit, now))
