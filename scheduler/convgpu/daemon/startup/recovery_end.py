"""The end of recovery: previous sessions are adopted, unregistered memory is charged, and grants begin."""

import logging
from collections.abc import Sequence
from typing import Protocol

from convgpu.core import events as e
from convgpu.daemon.audit.loop import Audit
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.residency.porter import Porter
from convgpu.daemon.sessions.export_records import ExportRecords
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.sessions import SessionTable

log = logging.getLogger(__name__)


class Adopter(Protocol):
    """Opens sessions for processes that do not connect."""

    async def adopt(self, previous: Sequence[PreviousSession]) -> None:
        """Open a session for each that lives and holds memory."""


class RecoveryEnd:
    """Ends recovery, in the one order in which no memory is granted twice.

    Args:
        adopter: opens sessions for processes that did not reconnect.
        audit: finds memory of processes without a session; None when the settings turn it off.
        driver: learns that grants may be given.
        sessions: all that are connected.
        table: where the next scheduler finds them.
        porter: gives the host what nobody has out any more.
        exports: what processes had exported.
    """

    def __init__(
        self,
        adopter: Adopter,
        audit: Audit | None,
        driver: MachineDriver,
        sessions: SessionRegistry,
        table: SessionTable,
        porter: Porter,
        exports: ExportRecords,
    ) -> None:
        self._adopter = adopter
        self._audit = audit
        self._driver = driver
        self._sessions = sessions
        self._table = table
        self._porter = porter
        self._exports = exports

    async def end(self, missing: Sequence[PreviousSession]) -> None:
        """Adopt who is missing, charge what nobody leases, and only then give grants."""
        await self._adopter.adopt(missing)
        self._exports.restore()
        if self._audit is not None:
            try:
                await self._audit.audit(at_once=True)
            except Exception:  # as in the audit itself
                log.exception("who holds memory without being known is not known")
        self._driver.dispatch(e.RecoveryEnded())
        log.info("grants are given")
        self._porter.adopt()
        self.mark_sessions_complete()

    def end_at_once(self) -> None:
        """Take up what is left where no process can hold memory: grants are given already."""
        self._exports.restore()
        self.mark_sessions_complete()
        self._porter.adopt()

    def mark_sessions_complete(self) -> None:
        """Note that from now on the table has all processes, so that the next scheduler knows for whom to wait."""
        if all(session.pid for session in self._sessions.by_number.values()):
            try:
                self._table.mark_complete()
            except OSError as error:
                log.error("the next scheduler will wait longer for its processes: %s", error)
