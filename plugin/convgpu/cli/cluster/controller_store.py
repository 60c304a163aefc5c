"""What the controller of a Slurm cluster remembers, in a file of SQLite: one row for each job and each kind of work."""

import fcntl
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

import msgspec

from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cluster.controller.record import JobRecord, KindRecord

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS jobs (job INTEGER PRIMARY KEY, document BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS kinds (name TEXT PRIMARY KEY, document BLOB NOT NULL);
"""
_JOB: Final = msgspec.json.Decoder(JobRecord)
_KIND: Final = msgspec.json.Decoder(KindRecord)


class Store:
    """The file; one controller at a time has it.

    Raises:
        Refused: another controller has it.
        Unavailable: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path.with_name(f"{path.name}.lock"))
            self._connection = _open(path)
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}.\nName another file: --state FILE") from error

    def jobs(self) -> list[JobRecord]:
        """Return the jobs that were saved."""
        rows = self._connection.execute("SELECT document FROM jobs")
        return [_JOB.decode(document) for (document,) in rows]

    def kinds(self) -> list[KindRecord]:
        """Return the kinds that were saved."""
        rows = self._connection.execute("SELECT document FROM kinds")
        return [_KIND.decode(document) for (document,) in rows]

    def save(self, jobs: Iterable[JobRecord], gone: Iterable[int], kinds: Iterable[KindRecord]) -> None:
        """Save all of it, or nothing.

        Raises:
            Unavailable: it cannot be written, as on a full disk.
        """
        told = [(job.job, msgspec.json.encode(job)) for job in jobs]
        learned = [(f"{kind.user} {kind.cards} {kind.kind}", msgspec.json.encode(kind)) for kind in kinds]
        try:
            with self._connection as connection:
                connection.executemany("DELETE FROM jobs WHERE job = ?", [(job,) for job in gone])
                connection.executemany("INSERT OR REPLACE INTO jobs VALUES (?, ?)", told)
                connection.executemany("INSERT OR REPLACE INTO kinds VALUES (?, ?)", learned)
        except sqlite3.Error as error:
            message = f"{self._path}: {error}; what the controller learned is not saved.\nSee: df {self._path.parent}"
            raise Unavailable(message) from error

    def close(self) -> None:
        """Let another controller have the file."""
        self._connection.close()
        self._lock.close()


def _locked(path: Path) -> IO[bytes]:
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise Refused("another controller runs with this file.\nSee: systemctl status convgpu-cluster") from error
    return file


def _open(path: Path) -> sqlite3.Connection:
    """Open the file; one that is damaged is put aside: what was learned is lost, and no job."""
    try:
        return _with_tables(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise OSError(0, str(error)) from error
        path.replace(path.with_name(f"{path.name}.damaged"))
        return _with_tables(path)


def _with_tables(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_TABLES}")
    return connection
