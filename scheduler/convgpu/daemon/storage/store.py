"""What has to survive a restart, in an SQLite database (docs/architecture.md, Database; docs/decisions/0012).

What somebody waits for (volumes, mounts, limits, sessions) is committed before the answer. History and figures that
only people read are committed soon afterwards, a slice at a time, so that the event loop never stands still for them.
"""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from convgpu.core.liveness import Mount
from convgpu.daemon.storage.database import (
    BUSY_MS,
    DatabaseError,
    checkpoint,
    connect,
    is_of_the_disk,
    open_database,
    sync_log,
)
from convgpu.daemon.storage.rows import DeviceMemory, PreviousSession, State, Volume
from convgpu.daemon.storage.write_queue import Pending, Row
from convgpu.protocol.records import EngineContainer

log = logging.getLogger(__name__)

T = TypeVar("T")
SLICE: Final = 64  # rows: 0.3 ms
_DELAY: Final = 0.05
_PAUSE: Final = 0.01  # between slices
_RETRY: Final = 1.0  # while the disk takes nothing
_CHECKPOINT: Final = 10.0
_MOST: Final = (1 << 63) - 1


class Store:
    """The database of one scheduler. `trouble`: why it cannot be written now, empty when it can.

    Args:
        directory: of the scheduler; the file is `state.db`.
        boot: identifies this run of the kernel: mounts of an earlier one are void, because no process survived.
        defer: `loop.call_later`, or whatever calls back after so many seconds.

    Raises:
        OSError: the directory cannot be written.
    """

    def __init__(self, directory: Path, boot: str, defer: Callable[[float, Callable[[], None]], object]) -> None:
        self.path = directory / "state.db"
        self._connection = open_database(self.path)
        self._defer = defer
        self.trouble = ""
        self._pending = Pending()
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="store")
        self._writing = self._checkpointing = False
        self._begin_boot(boot)
        # Are all processes of the earlier run that may hold memory in the book?
        self.complete = self.setting("complete") is not None

    def _begin_boot(self, boot: str) -> None:
        if self.setting("boot") == boot:
            return
        with self._transaction() as execute:
            execute("DELETE FROM sessions", ())
            execute("DELETE FROM mounts", ())
            execute("DELETE FROM device_memory", ())  # the driver may be another now, and take more
            if execute("UPDATE containers SET state = 'ended' WHERE state = 'running'", ()).rowcount:
                log.info("the machine was started anew: containers that were mounted before have ended")
            execute("INSERT OR REPLACE INTO settings VALUES ('boot', ?)", (boot,))

    # -- what is committed at once ----------------------------------------------------------------------------

    def begin_run(self) -> None:
        """From now on all processes are in the book."""
        if not self.complete:
            self.set_setting("complete", "yes")
            self.complete = True

    def break_run(self) -> None:
        """A process cannot be in the book: the next scheduler has to wait for it without knowing it."""
        if self.complete:
            self.complete = False
            self.later("DELETE FROM settings WHERE name = 'complete'", (), "complete")

    @contextmanager
    def _transaction(self) -> Iterator[Callable[[str, Sequence[object]], sqlite3.Cursor]]:
        """All or nothing.

        Raises:
            DatabaseError: nothing, then.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection.execute
            self._connection.execute("COMMIT")
        except (sqlite3.Error, ValueError, OverflowError) as error:  # the latter: a value that SQLite has no form for
            if is_of_the_disk(error):
                self._fail(error)
            raise DatabaseError(f"{self.path} cannot be written: {error}") from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if self.trouble:
            log.warning("%s can be written again; %d events of the history are lost", self.path, self._pending.lost)
            self.trouble = ""
            self._pending.lost = 0
        self._start_checkpoints()

    def _fail(self, error: Exception) -> None:
        """Say so once, and write something until it is over."""
        if not self.trouble:
            log.error("%s cannot be written, which is tried again every %g s: %s", self.path, _RETRY, error)
        self.trouble = f"{self.path} cannot be written: {error}"
        self._pending.add(Row("INSERT OR REPLACE INTO settings VALUES ('written', 'again')", (), "written"))
        self._write_soon(_RETRY)

    def add(self, volume: Volume) -> None:
        """Keep a new volume.

        Raises:
            DatabaseError: nothing has changed.
        """
        with self._transaction() as execute:
            row = (volume.name, json.dumps(volume.options), volume.created, volume.state, volume.since)
            execute("INSERT OR REPLACE INTO containers VALUES (?, ?, ?, ?, ?, NULL)", row)
            self._write_limits(execute, volume.name, volume.limits, volume.since)

    def remove(self, name: str) -> None:
        """Forget a volume with everything that belongs to it. Raises DatabaseError as `add`."""
        with self._transaction() as execute:
            execute("DELETE FROM containers WHERE name = ?", (name,))

    def set_mounts(self, name: str, mounts: Mapping[str, Mount], state: State, since: float) -> None:
        """Replace the mounts of a volume. Raises DatabaseError as `add`."""
        with self._transaction() as execute:
            execute("DELETE FROM mounts WHERE container = ?", (name,))
            for mount_id, mount in mounts.items():
                execute("INSERT INTO mounts VALUES (?, ?, ?, ?)", (name, mount_id, mount.count, mount.since))
            execute("UPDATE containers SET state = ?, since = ? WHERE name = ?", (state, since, name))

    def set_limits(self, name: str, limits: Mapping[str, int], now: float) -> None:
        """Keep the limits of a volume. Raises DatabaseError as `add`."""
        with self._transaction() as execute:
            self._write_limits(execute, name, limits, now)

    def set_targets(self, name: str, targets: Mapping[str, int]) -> None:
        """Keep the limits that were asked for. Raises DatabaseError as `add`."""
        with self._transaction() as execute:
            for device, target in targets.items():
                execute("UPDATE holdings SET target = ? WHERE container = ? AND device = ?", (target, name, device))

    @staticmethod
    def _write_limits(
        execute: Callable[[str, Sequence[object]], object], name: str, limits: Mapping[str, int], now: float
    ) -> None:
        statement = (
            "INSERT INTO holdings (container, device, most, since) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET most = excluded.most"
        )
        for device, limit in limits.items():
            execute(statement, (name, device, limit, now))

    def set_setting(self, name: str, value: str | None) -> None:
        """Keep a setting, or forget it. Raises DatabaseError as `add`."""
        with self._transaction() as execute:
            if value is None:
                execute("DELETE FROM settings WHERE name = ?", (name,))
            else:
                execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def set_drained(self, device: str, drained: bool) -> None:
        """Keep whether a device is drained. Raises DatabaseError as `add`."""
        with self._transaction() as execute:
            execute("UPDATE devices SET drained = ? WHERE uuid = ?", (int(drained), device))

    def add_session(self, former: PreviousSession) -> None:
        """Keep who is connected, before the process gets any memory; as soon as it can be written."""
        row = (former.pid, former.started, former.container, former.program)
        self._set_session(former, Row("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", row, former))

    def drop_session(self, former: PreviousSession) -> None:
        """Forget a process. It may come back at once, so this is not left for later if it can be written."""
        row = (former.pid, former.started, former.container)
        statement = "DELETE FROM sessions WHERE pid = ? AND started = ? AND container = ?"
        self._set_session(former, Row(statement, row, former))

    def _set_session(self, former: PreviousSession, row: Row) -> None:
        self._pending.forget(former)  # what is true now counts, whatever could not be written before
        try:
            with self._transaction() as execute:
                execute(row.statement, row.values)
        except DatabaseError:
            self._pending.add(row)

    def set_devices(self, names: Mapping[str, str], memory: Sequence[DeviceMemory]) -> None:
        """Keep which devices there are (UUID to name, in order), and what is known of their memory."""
        with self._transaction() as execute:
            for position, (uuid, name) in enumerate(names.items()):
                statement = (
                    "INSERT INTO devices (uuid, position, name) VALUES (?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET position = excluded.position, name = excluded.name"
                )
                execute(statement, (uuid, position, name))
            for one in memory:
                execute(_SET_MEMORY, _values(one))

    # -- what is committed soon -------------------------------------------------------------------------------

    def later(self, statement: str, row: Sequence[object], key: Hashable = None) -> None:
        """Write a row within a fraction of a second; an event, or a fact that an older one of the same key is not."""
        # SQLite's integers have a sign; a client may ask for more than that.
        values = [min(one, _MOST) if isinstance(one, int) else one for one in row]
        self._pending.add(Row(statement, values, key))
        self._write_soon(_DELAY)

    def _write_soon(self, delay: float) -> None:
        if not self._writing:
            self._writing = True
            self._defer(delay, self._write_next)

    def _write_next(self) -> None:
        written = self._write_slice()
        self._writing = False
        if self._pending:
            self._write_soon(_PAUSE if written else _RETRY)

    def _write_slice(self) -> bool:
        """Write some rows, or keep them if the disk takes none. Who locks the file is not waited for."""
        rows = self._pending.take(SLICE)
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            with self._transaction() as execute:
                for row in rows:
                    _write(execute, row)
        except DatabaseError:
            self._pending.give_back(rows)
            return False
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        return True

    def set_holding(self, name: str, device: str, granted: int, used: int) -> None:
        """Keep what a container holds, soon."""
        statement = "UPDATE holdings SET granted = ?, used = ? WHERE container = ? AND device = ?"
        self.later(statement, (granted, used, name, device), ("holding", name, device))

    def set_limit_in_force(self, name: str, device: str, limit: int, target: int | None) -> None:
        """Keep what became of a limit, soon: after a restart the one that was asked for is asked for again."""
        statement = "UPDATE holdings SET most = ?, target = ? WHERE container = ? AND device = ?"
        self.later(statement, (limit, target, name, device), ("limit", name, device))

    def set_engine(self, name: str, engine: EngineContainer) -> None:
        """Keep how the Engine names a container, soon."""
        row = (json.dumps(asdict(engine)), name)
        self.later("UPDATE containers SET engine = ? WHERE name = ?", row, ("engine", name))

    def set_memory(self, memory: DeviceMemory) -> None:
        """Keep what is known of a device's memory, soon."""
        self.later(_SET_MEMORY, _values(memory), ("memory", memory.device))

    # -- what is read -----------------------------------------------------------------------------------------

    def setting(self, name: str) -> str | None:
        """Return a setting that was kept."""
        row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def volumes(self) -> list[Volume]:
        """Return the volumes, oldest first; one that makes no sense is left out and logged."""
        rows = self._connection.execute("SELECT * FROM containers ORDER BY created, name").fetchall()
        volumes = []
        for name, options, created, state, since, engine in rows:
            mounts = self._connection.execute("SELECT id, count, since FROM mounts WHERE container = ?", (name,))
            limits = self._connection.execute(_LIMITS, (name,))
            plain = {
                "name": name,
                "options": json.loads(options),
                "created": created,
                "state": state,
                "since": since,
                "mounts": {mount: {"count": count, "since": at} for mount, count, at in mounts},
                "limits": dict(limits),
                "engine": None if engine is None else json.loads(engine),
            }
            try:
                volumes.append(msgspec.convert(plain, Volume))
            except msgspec.ValidationError as error:
                log.error("volume %r of an earlier run makes no sense and is forgotten: %s", name, error)
        return volumes

    def sessions(self) -> list[PreviousSession]:
        """Return who was connected."""
        return [PreviousSession(*row) for row in self._connection.execute("SELECT * FROM sessions")]

    def targets(self) -> dict[str, dict[str, int]]:
        """Return the lower limits that were asked for and were not in force: container to device to bytes."""
        found: dict[str, dict[str, int]] = {}
        statement = "SELECT container, device, target FROM holdings WHERE target < most"
        for container, device, target in self._connection.execute(statement):
            found.setdefault(container, {})[device] = target
        return found

    def drained(self) -> set[str]:
        """Return the devices that are drained."""
        return {uuid for (uuid,) in self._connection.execute("SELECT uuid FROM devices WHERE drained")}

    def memory(self) -> dict[str, DeviceMemory]:
        """Return what was known of the devices' memory."""
        rows = self._connection.execute("SELECT * FROM device_memory")
        return {row[0]: DeviceMemory(*row) for row in rows}

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Return what a short query finds."""
        return self._connection.execute(statement, values).fetchall()

    async def find(self, make: Callable[[tuple[Any, ...]], T], statement: str, values: Sequence[object]) -> list[T]:
        """Return what is made of the rows that a long query finds, while the loop goes on.

        What is still to be written is not found.

        Raises:
            DatabaseError: it cannot be read.
        """

        def query() -> list[T]:
            try:
                with closing(connect(self.path)) as connection:
                    return [make(row) for row in connection.execute(statement, values)]
            except sqlite3.Error as error:
                raise DatabaseError(f"{self.path} cannot be read: {error}") from error

        return await self._in_thread(query)

    # -- the disk ---------------------------------------------------------------------------------------------

    async def durable(self) -> None:
        """Return when everything that was committed survives a power loss.

        Raises:
            OSError: the disk does not take it.
        """
        await self._in_thread(lambda: sync_log(self.path))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _start_checkpoints(self) -> None:
        if not self._checkpointing:
            self._checkpointing = True
            self._defer(_CHECKPOINT, self._checkpoint)

    def _checkpoint(self) -> None:
        self._checkpointing = False
        self._threads.submit(checkpoint, self.path)

    def close(self) -> None:
        """Write what is pending, and leave one file."""
        while self._pending and self._write_slice():
            pass
        self._threads.shutdown()
        checkpoint(self.path)
        self._connection.close()


# A higher limit may have been in force and in use, whatever was written of it last.
_LIMITS: Final = "SELECT device, max(most, coalesce(target, most)) FROM holdings WHERE container = ?"
_SET_MEMORY: Final = "INSERT OR REPLACE INTO device_memory VALUES (?, ?, ?, ?, ?)"


def _write(execute: Callable[[str, Sequence[object]], object], row: Row) -> None:
    """Write a row; one that can never be written costs itself."""
    try:
        execute(row.statement, row.values)
    except (sqlite3.Error, ValueError, OverflowError) as error:
        if is_of_the_disk(error):
            raise
        log.error("a row is left out of the database: %s: %s", row.statement, error)


def _values(memory: DeviceMemory) -> tuple[object, ...]:
    return tuple(asdict(memory).values())
