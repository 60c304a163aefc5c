"""The database file: opened, checked, and moved aside when it cannot be used (docs/architecture.md, Database).

SQLite in WAL mode with synchronous=NORMAL: what was committed outlives this process, however it ends; a power loss can
cost the newest commits, never the rest (https://www.sqlite.org/wal.html). What must outlive that as well is synced by
itself: `transactions.Database.durable`.
"""

import contextlib
import logging
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

VERSION: Final = 4
_APPLICATION: Final = 0x43475055  # "CGPU", for file(1)
# Another process that reads the file with sqlite3(1) may hold it for a moment.
BUSY_MS: Final = 200
_LONG_LOG: Final = 4 << 20  # bytes

_SCHEMA: Final = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE devices (
    uuid TEXT PRIMARY KEY, position INTEGER NOT NULL, name TEXT NOT NULL, drained INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE device_memory (
    device TEXT PRIMARY KEY REFERENCES devices ON DELETE CASCADE,
    total INTEGER NOT NULL, capacity INTEGER NOT NULL, own INTEGER NOT NULL, external INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE containers (
    name TEXT PRIMARY KEY, options TEXT NOT NULL CHECK (json_valid(options)), created REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('created', 'running', 'ended')), since REAL NOT NULL,
    engine TEXT CHECK (engine IS NULL OR json_valid(engine)),
    changed TEXT CHECK (changed IS NULL OR json_valid(changed))
) STRICT, WITHOUT ROWID;
CREATE TABLE mounts (
    container TEXT NOT NULL REFERENCES containers ON DELETE CASCADE, id TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0), since REAL NOT NULL, PRIMARY KEY (container, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE holdings (
    container TEXT NOT NULL REFERENCES containers ON DELETE CASCADE, device TEXT NOT NULL,
    most INTEGER NOT NULL CHECK (most > 0), target INTEGER CHECK (target > 0),
    granted INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0,
    out INTEGER NOT NULL DEFAULT 0, fixed INTEGER NOT NULL DEFAULT 0,
    since REAL NOT NULL, PRIMARY KEY (container, device)
) STRICT, WITHOUT ROWID;
CREATE TABLE placements (
    container TEXT PRIMARY KEY REFERENCES containers ON DELETE CASCADE, choice TEXT NOT NULL CHECK (json_valid(choice)),
    placed TEXT CHECK (placed IS NULL OR json_valid(placed))
) STRICT, WITHOUT ROWID;
CREATE TABLE sessions (
    pid INTEGER NOT NULL, started INTEGER NOT NULL, container TEXT NOT NULL REFERENCES containers ON DELETE CASCADE,
    program TEXT NOT NULL, PRIMARY KEY (pid, started, container)
) STRICT, WITHOUT ROWID;
CREATE TABLE history (
    sequence INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, container TEXT NOT NULL, cause TEXT,
    device TEXT, size INTEGER, waited REAL, details TEXT NOT NULL CHECK (json_valid(details))
) STRICT;
"""
# By version, what leads to the next one.
_MIGRATIONS: Final = {
    1: """
CREATE TABLE placements (
    container TEXT PRIMARY KEY REFERENCES containers ON DELETE CASCADE, choice TEXT NOT NULL CHECK (json_valid(choice)),
    placed TEXT CHECK (placed IS NULL OR json_valid(placed))
) STRICT, WITHOUT ROWID;
""",
    2: """
ALTER TABLE holdings ADD COLUMN out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdings ADD COLUMN fixed INTEGER NOT NULL DEFAULT 0;
""",
    3: """
ALTER TABLE containers ADD COLUMN changed TEXT CHECK (changed IS NULL OR json_valid(changed));
""",
}
# What is worth saving out of a damaged file, in an order that satisfies the references. History is not.
_SALVAGED: Final = (
    "settings",
    "devices",
    "device_memory",
    "containers",
    "mounts",
    "holdings",
    "placements",
    "sessions",
)

# Errors that say that the file is not what it should be; others (disk full, read-only, locked) are no reason to give
# up what stands in it. https://www.sqlite.org/rescode.html
_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_NOTADB,
    }
)
# Errors that say nothing about what was to be written: it is tried again.
_PASSING: Final = _DAMAGE - {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH} | {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_PERM,
}
_UNREADABLE: Final = frozenset({sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ})


class DatabaseError(OSError):
    """The database cannot be read or written now; what stands in it is as it was."""


class _UnusableError(Exception):
    """The file is not a sound database of this version."""


def open_database(path: Path) -> sqlite3.Connection:
    """Return a connection to a sound database of this version; one that is not is moved aside and begun anew.

    Raises:
        OSError: the folder cannot be written, the disk is full, or another process holds the file.
    """
    try:
        return _open(path)
    except _UnusableError as error:
        aside = path.with_name(f"{path.stem}.damaged{path.suffix}")
        log.error("%s is moved to %s and begun anew: %s", path, aside, error)
        _move(path, aside)
        connection = _open_fresh(path)
        _salvage(aside, connection)
        return connection


def _open_fresh(path: Path) -> sqlite3.Connection:
    try:
        return _open(path)
    except _UnusableError as error:
        raise DatabaseError(f"{path} cannot be made: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    connection = None
    try:
        connection = connect(path)
        _prepare(connection)
    except (sqlite3.Error, _UnusableError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error) and not _is_damage(error):
            raise DatabaseError(f"{path} cannot be used: {error}; make room, or make it writable") from error
        raise _UnusableError(str(error)) from error
    path.chmod(0o600)
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection without transactions of its own, for the thread that calls."""
    connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")  # a damaged text must not end us
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # it would sync in the event loop; see transactions.py
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables:
        [sound] = connection.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise _UnusableError(sound.replace("\n", " "))
        while version in _MIGRATIONS:
            version += 1
            connection.executescript(f"BEGIN;{_MIGRATIONS[version - 1]}PRAGMA user_version = {version};COMMIT;")
        if version != VERSION:
            raise _UnusableError(f"it has schema version {version}, this scheduler writes {VERSION}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if tables:
        [now] = connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").fetchone()
        if now != _SCHEMA.count("CREATE TABLE"):
            raise _UnusableError(f"it has {now} tables")
    else:
        script = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {VERSION};"
        connection.executescript(f"BEGIN;{_SCHEMA}{script}COMMIT;")


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # none: Python could not decode what came
    return code in _UNREADABLE or code & 0xFF in _DAMAGE


def is_of_the_disk(error: Exception) -> bool:
    """Say whether anything could have failed so, whatever was to be written."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _PASSING


def is_lock(error: Exception) -> bool:
    """Say whether another process holds the lock of the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _move(path: Path, aside: Path) -> None:
    """Rename the file and its log to names that nobody opens again; what lay there is replaced."""
    for suffix in ("-shm", "-wal", ""):
        old, new = Path(f"{path}{suffix}"), Path(f"{aside}{suffix}")
        if new.is_dir() and not new.is_symlink():
            shutil.rmtree(new)
        else:
            new.unlink(missing_ok=True)
        if suffix == "-shm":
            old.unlink(missing_ok=True)  # SQLite makes it anew
            continue
        with contextlib.suppress(FileNotFoundError):
            old.replace(new)


def _salvage(aside: Path, connection: sqlite3.Connection) -> None:
    """Copy what can still be read and is of the right shape; of another version, the columns that both have."""
    saved = 0
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(aside)) as old:
        for table in _SALVAGED:
            with contextlib.suppress(sqlite3.Error):
                saved += _salvage_table(old, connection, table)
    connection.execute("DELETE FROM settings WHERE name = 'complete'")
    log.error("%d rows were saved out of %s", saved, aside)


def _salvage_table(old: sqlite3.Connection, connection: sqlite3.Connection, table: str) -> int:
    ours, theirs = _columns(connection, table), _columns(old, table)
    common = ",".join(name for name in ours if name in theirs)
    places = ",".join("?" for name in ours if name in theirs)
    saved = 0
    for row in old.execute(f"SELECT {common} FROM {table}"):  # noqa: S608 - our own names
        with contextlib.suppress(sqlite3.Error):
            statement = f"INSERT OR IGNORE INTO {table} ({common}) VALUES ({places})"  # noqa: S608
            saved += connection.execute(statement, row).rowcount
    return saved


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def sync_log(path: Path) -> None:
    """Bring everything that was committed to the disk. SQLite holds no locks on the log, so it may be opened here.

    Raises:
        OSError: the disk does not take it.
    """
    descriptor = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def checkpoint(path: Path) -> None:
    """Move the log into the file; writers go on meanwhile. A failure only lets the log grow.

    A log that is long is emptied afterwards, which holds writers up for what they wrote in between: without that it
    would never begin anew under constant load.
    """
    try:
        with contextlib.closing(connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if Path(f"{path}-wal").stat().st_size > _LONG_LOG:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except (sqlite3.Error, FileNotFoundError) as error:
        log.warning("%s: its log could not be moved into it: %s", path, error)
