"""Adoption: sessions for processes of an earlier scheduler that live and do not reconnect."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence

from convgpu.core.machine import Machine
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.hook_api.session_factory import SessionFactory
from convgpu.daemon.sessions.disconnected import DisconnectedSessions
from convgpu.daemon.sessions.lifecycle import SessionLifecycle
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.sessions import SessionTable
from convgpu.daemon.system.procfs import lives_since, look_at, open_process
from convgpu.daemon.transport.connection import Absent

log = logging.getLogger(__name__)


class SessionAdopter:
    """Opens sessions for processes that do not reconnect, so that their memory is not granted twice.

    Args:
        machine: knows the limits of containers; only read here.
        sessions: all that are connected.
        lifecycle: opens the sessions.
        contexts: knows the driver's count of each process.
        factory: makes the sessions.
        table: forgets processes that are gone or hold nothing.
        disconnected: waits for the processes afterwards.
    """

    def __init__(
        self,
        machine: Machine,
        sessions: SessionRegistry,
        lifecycle: SessionLifecycle,
        contexts: ContextSizes,
        factory: SessionFactory,
        table: SessionTable,
        disconnected: DisconnectedSessions,
    ) -> None:
        self._machine = machine
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._contexts = contexts
        self._factory = factory
        self._table = table
        self._disconnected = disconnected

    async def adopt(self, missing: Sequence[PreviousSession]) -> None:
        """Open a session for each process that lives and holds memory by the driver's count."""
        counts = await asyncio.gather(
            *(
                self._contexts.held_on_each(self._machine.accounts(previous.container), previous.pid)
                for previous in missing
            )
        )
        for previous, count in zip(missing, counts, strict=True):
            try:
                self._adopt(previous, self._charge(previous.container, count))
            except OSError as error:
                log.error("what pid %d holds may be granted twice: %s", previous.pid, error)

    def _charge(self, container: str, count: Mapping[str, int | None]) -> dict[str, int]:
        """Return what to charge for a process on each device, in bytes; the whole limit where the count is unknown.

        The volume may have been removed or made again during the count: devices without a limit are left out.
        """
        accounts = self._machine.accounts(container)
        return {
            uuid: accounts[uuid].limit if size is None else size for uuid, size in count.items() if uuid in accounts
        }

    def _adopt(self, previous: PreviousSession, held: Mapping[str, int]) -> None:
        if self._sessions.find(previous.container, previous.pid, previous.started) is not None:
            return
        process = open_process(previous.pid)
        if not any(held.values()) or process is None or not lives_since(previous.pid, previous.started):
            if process is not None:
                os.close(process)
            self._table.drop(previous)
            return
        session = self._factory.make(Absent(previous.pid), process, previous, look_at(previous.pid))
        session.page.close_descriptor()
        log.warning("pid %d of %s does not reconnect; what it holds stays its own", previous.pid, previous.container)
        self._lifecycle.open(session, held)
        self._disconnected.add(session)
