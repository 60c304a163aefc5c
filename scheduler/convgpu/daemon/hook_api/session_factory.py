"""Makes sessions of processes from what the kernel knows about them."""

import os
from collections.abc import Callable

from convgpu.core.machine import Machine
from convgpu.daemon.hook_api.fixed_leases import FixedLeases
from convgpu.daemon.sessions.lifecycle import SessionLifecycle
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.system.procfs import KernelFacts
from convgpu.daemon.transport.connection import Absent, Connection
from convgpu.daemon.transport.shared_page import Page, PageLibrary
from convgpu.protocol.wire import PageFlag


class SessionFactory:
    """Makes sessions, each with its own page.

    Args:
        machine: knows on which devices a container has a limit.
        lifecycle: numbers the sessions.
        pages: initialises the pages.
        wall_clock: Unix seconds.
        fixed: knows which containers have memory that may leave, and leases what of it cannot.
    """

    def __init__(
        self,
        machine: Machine,
        lifecycle: SessionLifecycle,
        pages: PageLibrary,
        wall_clock: Callable[[], float],
        fixed: FixedLeases,
    ) -> None:
        self._machine = machine
        self._lifecycle = lifecycle
        self._pages = pages
        self._wall_clock = wall_clock
        self.fixed = fixed

    def make(
        self,
        connection: Connection | Absent,
        process: int | None,
        identity: PreviousSession,
        facts: KernelFacts,
        own_pid: int = 0,
    ) -> Session:
        """Return a session that is in no registry yet. Its page's descriptor is still open.

        Args:
            connection: of the process.
            process: its pidfd, which the session takes over; closed if no session can be made.
            identity: of the process, with its container.
            facts: what the kernel tells of the process.
            own_pid: as the process sees itself.

        Raises:
            OSError: no memory or no descriptors are left for the page.
        """
        rows = tuple(self._machine.accounts(identity.container))
        is_elastic = self.fixed.may_leave(identity.container)
        page = self._make_page(identity.container, len(rows), process)
        return Session(
            number=self._lifecycle.next_number(),
            container=identity.container,
            connection=connection,
            page=page,
            rows=rows,
            program=identity.program,
            since=self._wall_clock(),
            process=process,
            started=identity.started,
            ids=facts.ids,
            namespace=facts.namespace,
            pids=facts.pids,
            own_pid=own_pid,
            is_elastic=is_elastic,
        )

    def _make_page(self, container: str, rows: int, process: int | None) -> Page:
        try:
            return Page(self._pages, rows, self._flags(container))
        except OSError:
            if process is not None:
                os.close(process)
            raise

    def _flags(self, container: str) -> PageFlag:
        """Return what the page tells the hook of its container."""
        flags = PageFlag.WITHDRAW | PageFlag.EXPORTS
        if self.fixed.may_leave(container):
            flags |= PageFlag.ELASTIC
        if self.fixed.is_unified(container):
            flags |= PageFlag.UNIFIED
        return flags | PageFlag.CHOSEN if self._machine.hides_others(container) else flags
