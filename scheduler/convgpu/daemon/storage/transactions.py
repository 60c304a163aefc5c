"""Transactions on the database: committed at once, or soon and a slice at a time; reading; syncing to the disk.

What somebody waits for (volumes, mounts, limits, sessions) is committed before the answer. History and figures that
only people read are committed soon afterwards, a slice at a time, so that the event loop is never blocked for long.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from convgpu.daemon.storage.database import (
    BUSY_MS,
    DatabaseError,
    checkpoint,
    connect,
    is_lock,
    is_of_the_disk,
    open_database,
    sync_log,
)
from convgpu.daemon.storage.write_queue import Row, WriteQueue

log = logging.getLogger(__name__)

T = TypeVar("T")
Execute = Callable[[str, Sequence[object]], sqlite3.Cursor]

SLICE: Final = 64  # rows: 0.3 ms
_DELAY: Final = 0.05
_PAUSE: Final = 0.01  # between slices
_RETRY: Final = 1.0  # while the disk takes nothing
_LOCK_RETRY: Final = 0.02  # while another process holds the lock, mostly for milliseconds
_LOCK_RETRIES: Final = 10  # until it is said
_CHECKPOINT_DELAY: Final = 2.0
_MAX_INTEGER: Final = (1 << 63) - 1


class Database:
    """An open database file.

    Attributes:
        path: of the file.
        trouble: why it cannot be written now, empty when it can.

    Args:
        path: of the file, which is made if it is missing.
        defer: `loop.call_later`, or whatever calls back after that many seconds.

    Raises:
        OSError: the directory cannot be written.
    """

    def __init__(self, path: Path, defer: Callable[[float, Callable[[], None]], object]) -> None:
        self.path = path
        self.trouble = ""
        self._connection = open_database(path)
        self._is_closed = False
        self._defer = defer
        self._queue = WriteQueue()
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="store")
        self._writing = self._checkpointing = False
        self._locked = 0  # how often in a row another process held the lock

    # -- committed at once -----------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Commit all statements that are executed, or none.

        Raises:
            DatabaseError: none was committed.
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
        self._locked = 0
        if self.trouble:
            log.warning("%s can be written again; %d events of the history are lost", self.path, self._queue.lost)
            self.trouble = ""
            self._queue.lost = 0
        self._start_checkpoints()

    @contextmanager
    def _transaction_without_waiting(self) -> Iterator[Execute]:
        """The same; a lock of another process is not waited for, because the event loop would stand still meanwhile.

        Raises:
            DatabaseError: none was committed; the caller has to queue what it is about.
        """
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            with self.transaction() as execute:
                yield execute
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _fail(self, error: Exception) -> None:
        """Have it tried again soon; if it is no momentary lock of another process, record that.

        A lock counts once until it is tried again: hundreds of processes may start and end meanwhile.
        """
        if is_lock(error) and (self._writing or self._locked < _LOCK_RETRIES):
            self._locked += not self._writing
            self._write_soon(_LOCK_RETRY)
        else:
            self._record_trouble(error)

    def _record_trouble(self, error: Exception) -> None:
        """Log the first failure, and write something from time to time to see when the disk works again."""
        if not self.trouble:
            log.error("%s cannot be written, which is tried again every %g s: %s", self.path, _RETRY, error)
        self.trouble = f"{self.path} cannot be written: {error}"
        self._queue.add(Row("INSERT OR REPLACE INTO settings VALUES ('written', 'again')", (), "written"))
        self._write_soon(_RETRY)

    def write_now_or_soon(self, row: Row) -> None:
        """Commit a fact at once; when that cannot be, as soon as it can. Older rows of its key are void."""
        self.write_all_now_or_soon([row])

    def write_all_now_or_soon(self, rows: Sequence[Row]) -> None:
        """As `write_now_or_soon`, several facts together."""
        for row in rows:
            self._queue.forget(row.key)
        try:
            with self._transaction_without_waiting() as execute:
                for row in rows:
                    execute(row.statement, row.values)
        except DatabaseError:
            for row in rows:
                self._queue.add(row)

    # -- committed soon --------------------------------------------------------------------------------------

    def later(self, statement: str, row: Sequence[object], key: Hashable = None) -> None:
        """Write a row within a fraction of a second: an event, or with a key a fact that replaces older ones."""
        # SQLite's integers are signed; a client may name larger sizes.
        values = [min(value, _MAX_INTEGER) if isinstance(value, int) else value for value in row]
        self._queue.add(Row(statement, values, key))
        self._write_soon(_DELAY)

    def forget_queued(self, is_void: Callable[[Hashable], bool]) -> None:
        """Drop queued facts whose keys are void: what they describe exists no more."""
        self._queue.forget_where(is_void)

    def _write_soon(self, delay: float) -> None:
        if not self._writing:
            self._writing = True
            self._call_later(delay, self._write_next)

    def _write_next(self) -> None:
        self._writing = False
        written = self._write_slice()
        if self._queue:
            self._write_soon(_PAUSE if written else _RETRY if self.trouble else _LOCK_RETRY)

    def _write_slice(self) -> bool:
        """Write some rows, or queue them again if the disk takes none."""
        rows = self._queue.take(SLICE)
        try:
            with self._transaction_without_waiting() as execute:
                for row in rows:
                    _write(execute, row)
        except DatabaseError:
            self._queue.give_back(rows)
            return False
        return True

    # -- read ------------------------------------------------------------------------------------------------

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return what a short query finds."""
        return self._connection.execute(statement, values).fetchall()

    def each(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """Yield what a query finds, without a list of it all."""
        yield from self._connection.execute(statement)

    async def find(self, make: Callable[[tuple[Any, ...]], T], statement: str, values: Sequence[object]) -> list[T]:
        """Return what `make` makes of the rows that a long query finds; the loop goes on meanwhile.

        Rows that are still to be committed are not found.

        Raises:
            DatabaseError: the file cannot be read.
        """

        def query() -> list[T]:
            try:
                with closing(connect(self.path)) as connection:
                    return [make(row) for row in connection.execute(statement, values)]
            except sqlite3.Error as error:
                raise DatabaseError(f"{self.path} cannot be read: {error}") from error

        return await self._in_thread(query)

    # -- the disk --------------------------------------------------------------------------------------------

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
            self._call_later(_CHECKPOINT_DELAY, self._checkpoint)

    def _checkpoint(self) -> None:
        self._checkpointing = False
        self._threads.submit(checkpoint, self.path)

    def _call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._defer(delay, lambda: None if self._is_closed else call())

    def close(self) -> None:
        """Write what is queued, and leave one file. Nothing is written after that, also by calls that are due still."""
        while self._queue and self._write_slice():
            pass
        self._is_closed = True
        self._threads.shutdown()
        checkpoint(self.path)
        self._connection.close()


def _write(execute: Execute, row: Row) -> None:
    """Write a row. One that can never be written is logged and left out, so that it does not hold up the others."""
    try:
        execute(row.statement, row.values)
    except (sqlite3.Error, ValueError, OverflowError) as error:
        if is_of_the_disk(error):
            raise
        log.error("a row is left out of the database: %s: %s", row.statement, error)
