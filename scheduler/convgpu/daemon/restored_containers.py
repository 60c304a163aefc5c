"""The third stage of a start: the containers of an earlier scheduler are there again, and processes can connect."""

import asyncio
import time
from dataclasses import dataclass

from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.audit.container_resolver import ContainerResolver
from convgpu.daemon.audit.holdings import HoldingsWriter
from convgpu.daemon.audit.loop import Audit
from convgpu.daemon.audit.overuse import OveruseEnforcer, OveruseRules
from convgpu.daemon.audit.refusals import RefusalJudge
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.containers.reconciliation import Reconciliation
from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.hook_api.server import HookServer
from convgpu.daemon.running_machine import RunningMachine
from convgpu.daemon.sessions.disconnected import DisconnectedSessions
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.settings import Settings
from convgpu.daemon.transport.shared_page import PageLibrary


@dataclass(frozen=True, slots=True)
class RestoredContainers:
    """Containers with their sockets, the server of their processes, and the audit."""

    running: RunningMachine
    containers: ContainerRegistry
    reconciliation: Reconciliation
    hook_server: HookServer
    audit: Audit
    report: AuditReport

    def close(self) -> None:
        """Close the sockets and connections of containers, and stop the audit."""
        self.containers.close()
        self.hook_server.close()
        self.audit.close()


def restore_containers(running: RunningMachine, settings: Settings) -> RestoredContainers:
    """Open the volumes that an earlier scheduler left, with their sockets."""
    host, volumes = running.host, running.host.store.volumes
    containers = ContainerRegistry(
        volumes,
        host.folders,
        running.driver,
        running.sessions,
        running.history,
        running.capacities.rows,
        time.time,
    )
    reconciliation = Reconciliation(containers, running.sessions, volumes, host.folders, time.time)
    resolver = ContainerResolver(running.sessions, lambda: reconciliation.volume_of)
    attributor = Attributor(running.machine, running.sessions, resolver)
    hook_server = _make_hook_server(running, containers, attributor, settings)
    containers.restore(hook_server)
    report = AuditReport(health={device.uuid: device.trouble for device in host.devices if device.trouble})
    audit = _make_audit(running, attributor, report, settings)
    return RestoredContainers(running, containers, reconciliation, hook_server, audit, report)


def _make_hook_server(
    running: RunningMachine, containers: ContainerRegistry, attributor: Attributor, settings: Settings
) -> HookServer:
    host = running.host
    contexts = ContextSizes(host.executor, running.capacities.own)

    async def may_hold(session: Session) -> bool:
        """Say whether the process may hold memory; an unknown figure (None) counts as held."""
        held = await asyncio.gather(*(contexts.held(uuid, session.pid) for uuid in session.rows))
        return any(size != 0 for size in held)

    judge = RefusalJudge(
        host.executor,
        running.machine,
        running.sessions,
        attributor,
        running.capacities,
        audited=bool(settings.audit),
    )
    return HookServer(
        containers,
        running.machine,
        running.sessions,
        running.lifecycle,
        contexts,
        PageLibrary(settings.libraries / "libconvgpu-page.so"),
        host.store.sessions,
        DisconnectedSessions(asyncio.get_running_loop(), may_hold, running.lifecycle.end),
        judge,
        time.time,
    )


def _make_audit(running: RunningMachine, attributor: Attributor, report: AuditReport, settings: Settings) -> Audit:
    host = running.host
    rules = OveruseRules(settings.overuse, settings.overuse_after)
    audit = Audit(
        host.executor,
        running.driver,
        attributor,
        running.capacities,
        OveruseEnforcer(running.sessions, running.history, report, rules),
        HoldingsWriter(running.machine, running.sessions, host.store.volumes),
        report,
    )
    if settings.audit:
        audit.start(settings.audit)
    return audit
