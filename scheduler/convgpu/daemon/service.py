"""The composition root: makes the parts of one scheduler, in stages of which each needs the one before.

`OpenedHost` (files, database, devices) -> `RunningMachine` (decisions) -> `RestoredContainers` (what an earlier
scheduler left) -> `Service` (sockets). A stage is a value, so that no part can be made before what it needs.
"""

import asyncio
import fcntl
import logging
import os
import resource
import time
from typing import Final

from convgpu.daemon.admin_api.card_turns import CardTurns
from convgpu.daemon.admin_api.live_settings import LiveSettings
from convgpu.daemon.admin_api.queries import Queries
from convgpu.daemon.admin_api.server import AdminServer, Listeners
from convgpu.daemon.admin_api.socket import AdminSocket
from convgpu.daemon.admin_api.views import Views
from convgpu.daemon.sessions.recovery import Recovery
from convgpu.daemon.settings import Settings
from convgpu.daemon.startup.opened_host import OpenedHost, open_host
from convgpu.daemon.startup.recovery_end import RecoveryEnd
from convgpu.daemon.startup.restored_containers import RestoredContainers, restore_containers
from convgpu.daemon.startup.running_machine import start_machine
from convgpu.daemon.transport.shares import ADMINISTRATORS
from convgpu.protocol.layout import ADMIN_SOCKET_FILE

log = logging.getLogger(__name__)

_TABLE: Final = 1 << 15  # descriptors; each takes eight bytes of the kernel's


class Service:
    """One scheduler. Construct it inside a running loop; `close` ends it.

    `broken` is set when it cannot go on, and the next scheduler has to begin.

    Raises:
        DeviceError: no devices.
        ValueError: a setting that cannot be.
        OSError: files cannot be read or written.
    """

    def __init__(self, settings: Settings) -> None:
        self._loop = asyncio.get_running_loop()
        self.broken = asyncio.Event()
        _allow_many_descriptors()
        self._host = open_host(settings)
        try:
            self._start(settings)
        except BaseException:
            self._host.store.close()
            self._host.lock.release()  # whoever explains why it did not start works in the same directory
            raise

    def _start(self, settings: Settings) -> None:
        self._host.lock.watch(self._loop, self.broken.set)
        self._running = start_machine(self._host, settings, self.broken.set)
        self._restored = restore_containers(self._running, settings)
        self._recovery = self._begin_recovery(self._restored, settings)
        server = self._make_admin_server(self._restored, settings)
        path = settings.directory / ADMIN_SOCKET_FILE
        share = self._running.shares.of(ADMINISTRATORS)
        self._admin = AdminSocket(share, path, self._host.folders.staging, server)

    def _begin_recovery(self, restored: RestoredContainers, settings: Settings) -> Recovery | None:
        """Begin recovery; None when no process can hold memory, and grants are given at once."""
        running, host = restored.running, restored.running.host
        audit = restored.audit if settings.audit else None
        end = RecoveryEnd(
            restored.adopter,
            audit,
            running.driver,
            running.sessions,
            host.store.sessions,
            running.porter,
            running.exports,
        )
        if not running.machine.recovering:
            end.end_at_once()
            return None
        return Recovery(
            self._loop,
            host.previous,
            complete=host.knows_all_previous,
            has_reconnected=lambda p: running.sessions.find(p.container, p.pid, p.started) is not None,
            is_settled=running.settling.is_settled,
            on_end=end.end,
            on_failure=self.broken.set,
        )

    def _make_admin_server(self, restored: RestoredContainers, settings: Settings) -> AdminServer:
        running, host = restored.running, restored.running.host
        live_settings = LiveSettings(
            restored.containers,
            running.driver,
            running.sessions,
            running.history,
            host.store,
            settings.policy,
            settings.placement,
        )
        live_settings.restore()
        views = _make_views(restored, host)
        usage = restored.sampler.history
        queries = Queries(
            views, running.history, usage, host.store, live_settings, running.inspection, simulated=host.simulated
        )
        on_nobody_runs = self._recovery.mark_complete if self._recovery else lambda: None
        return AdminServer(
            restored.containers,
            restored.reconciliation,
            live_settings,
            queries,
            host.store,
            Listeners(on_nobody_runs, restored.unlimited.judge),
            time.time,
        )

    def close(self) -> None:
        """Close all sockets; the processes keep what they have. What must survive is in files already."""
        self._running.stop()
        self._host.lock.stop_watching()
        self._admin.close()
        self._restored.close()
        if self._recovery is not None:
            self._recovery.close()
        try:
            self._running.history.close()
        except OSError as error:
            log.error("the history has a gap: %s", error)
        self._host.store.close()
        # Last, as it may take its time, and our supervisor's patience ends. Until then it copies for processes whose
        # connections are closed, as that of a killed scheduler does. Nobody else begins here: the lock is held.
        self._running.porter.stop()


def _make_views(restored: RestoredContainers, host: OpenedHost) -> Views:
    running = restored.running
    return Views(
        restored.pauses,
        running.driver,
        running.sessions,
        host.devices,
        running.capacities,
        restored.report,
        CardTurns(running.machine, running.elastic.host_pool, asyncio.get_running_loop().time, time.time),
    )


def _allow_many_descriptors() -> None:
    """Raise the limit of descriptors: each process costs four, and a thousand processes must be possible.

    The kernel makes the table of descriptors larger each time that it is full, and with threads that takes 10 to 20 ms
    (synchronize_rcu in expand_fdtable). So it is made large here, before anybody is served.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.close(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, min(hard, _TABLE) - 1))
