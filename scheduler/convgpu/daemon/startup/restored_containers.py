"""The third stage of a start: the containers of an earlier scheduler are restored, and processes can connect."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.audit.container_resolver import ContainerResolver
from convgpu.daemon.audit.doubts.ended_processes import EndedProcesses
from convgpu.daemon.audit.doubts.namespaces import NamespaceQuestions
from convgpu.daemon.audit.doubts.unseen import UnseenMemory
from convgpu.daemon.audit.ends.survivors import Ender
from convgpu.daemon.audit.enforcement import Enforcement
from convgpu.daemon.audit.holdings import HoldingsWriter
from convgpu.daemon.audit.keepers import Keepers
from convgpu.daemon.audit.learning import LimitLearner
from convgpu.daemon.audit.loop import Audit
from convgpu.daemon.audit.overuse import OveruseEnforcer, OveruseRules
from convgpu.daemon.audit.recount import Recount
from convgpu.daemon.audit.refusals import RefusalJudge
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.audit.sampling import DeviceSampler, OwnerlessMemory
from convgpu.daemon.audit.unlimited import UnlimitedContainers
from convgpu.daemon.containers.pause_text import PauseText
from convgpu.daemon.containers.reconciliation import Reconciliation
from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.hook_api.adoption import SessionAdopter
from convgpu.daemon.hook_api.fixed_leases import Copies, FixedLeases, Suspension
from convgpu.daemon.hook_api.handshake import Handshake
from convgpu.daemon.hook_api.peers import Isolation, PeerCheck
from convgpu.daemon.hook_api.server import HookServer
from convgpu.daemon.hook_api.session_factory import SessionFactory
from convgpu.daemon.hook_api.session_requests import SessionRequests
from convgpu.daemon.sessions.disconnected import DisconnectedSessions
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.settings import Settings
from convgpu.daemon.startup.running_machine import RunningMachine
from convgpu.daemon.storage.settings import TAKEN_OFF
from convgpu.daemon.system.births.origins import Origins
from convgpu.daemon.transport.shared_page import PageLibrary
from convgpu.daemon.usage.sampler import UsageSampler

_CONTEXTS: Final = "contexts"  # name of the setting: what contexts take at least, by device


@dataclass(frozen=True, slots=True)
class RestoredContainers:
    """Containers with their sockets, the server of their processes, the audit, and samples of the usage."""

    running: RunningMachine
    containers: ContainerRegistry
    reconciliation: Reconciliation
    hook_server: HookServer
    adopter: SessionAdopter
    audit: Audit
    unlimited: UnlimitedContainers
    report: AuditReport
    pauses: PauseText
    sampler: UsageSampler
    ended: EndedProcesses

    def close(self) -> None:
        """Close the sockets and connections of containers, and stop the audit."""
        self.containers.close()
        self.hook_server.close()
        self.running.shares.close()
        self.audit.close()
        self.sampler.close()
        self.ended.close()
        self.running.capacities.outliving.close()


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
    containers.granule = running.oversubscription.granule
    containers.host_memory = {row.uuid: running.elastic.planned(row.uuid) for row in host.capacities}
    reconciliation = Reconciliation(containers, running.sessions, volumes, host.folders, time.time)
    resolver = ContainerResolver(running.sessions, lambda: reconciliation.volume_of)
    origins = Origins()
    outliving = running.capacities.outliving
    namespaces, unseen = NamespaceQuestions(host.nvml), UnseenMemory(host.nvml)
    ended = EndedProcesses(
        origins, namespaces, unseen, outliving.stays, outliving.charged_of, running.lifecycle.ending.counted
    )
    attributor = Attributor(running.machine, running.sessions, resolver, host.control, ended)
    isolation = Isolation(running.shares, PeerCheck(lambda: reconciliation.volume_of, host.folders.place))
    contexts = _make_contexts(running)
    containers.contexts = contexts.least
    sampler = _make_device_sampler(running, attributor)
    judge = _make_judge(running, sampler, attributor, settings)
    pages = PageLibrary(settings.libraries / "libconvgpu-page.so")
    hook_server, adopter = _make_hook_api(running, containers, judge, isolation, pages, contexts)
    containers.restore(hook_server)
    report = AuditReport(health={device.uuid: device.trouble for device in host.devices if device.trouble})
    audit, unlimited = _make_audit(running, sampler, attributor, report, settings)
    pauses = _explain_pauses(running, containers)
    usage = _start_sampler(running, containers, report)
    if settings.audit:
        origins.start()
    return RestoredContainers(
        running, containers, reconciliation, hook_server, adopter, audit, unlimited, report, pauses, usage, ended
    )


def _start_sampler(running: RunningMachine, containers: ContainerRegistry, report: AuditReport) -> UsageSampler:
    executor, sessions = running.host.executor, running.sessions
    sampler = UsageSampler(executor, running.machine, containers, sessions, running.capacities, report, time.time)
    sampler.start()
    return sampler


def _explain_pauses(running: RunningMachine, containers: ContainerRegistry) -> PauseText:
    indices = {device.uuid: device.index for device in running.host.devices}
    pauses = PauseText(containers, running.machine, indices, running.history.run_times.usual, time.time)
    running.notices.explain, running.notices.describe = running.driver.explain_one, pauses.describe
    return pauses


def _make_contexts(running: RunningMachine) -> ContextSizes:
    settings = running.host.store.settings
    try:
        seen = msgspec.json.decode(settings.get(_CONTEXTS) or "{}", type=dict[str, int])
    except msgspec.MsgspecError:
        seen = {}

    def keep(least: Mapping[str, int]) -> None:
        settings.note(_CONTEXTS, msgspec.json.encode(least).decode())

    return ContextSizes(running.host.executor, running.capacities.own, seen, keep)


def _make_hook_api(
    running: RunningMachine,
    containers: ContainerRegistry,
    judge: RefusalJudge,
    isolation: Isolation,
    pages: PageLibrary,
    contexts: ContextSizes,
) -> tuple[HookServer, SessionAdopter]:
    machine, sessions, lifecycle = running.machine, running.sessions, running.lifecycle
    table = running.host.store.sessions
    fixed = FixedLeases(containers, running.driver, sessions, _make_copies(running))
    factory = SessionFactory(machine, lifecycle, pages, time.time, fixed)
    disconnected = _make_disconnected(running, contexts)
    handshake = Handshake(containers, machine, sessions, lifecycle, contexts, factory, table)
    suspension = Suspension(running.elastic, fixed)
    requests = SessionRequests(machine, sessions, lifecycle, contexts, judge, running.inspection, suspension)
    server = HookServer(containers, machine, sessions, handshake, requests, disconnected, isolation)
    return server, SessionAdopter(machine, sessions, lifecycle, contexts, factory, table, disconnected)


def _make_copies(running: RunningMachine) -> Copies:
    def copies(container: str, pid: int, started: int) -> Mapping[str, int] | None:
        """Return what of a process is on the host; nobody can tell of contexts that the driver has taken off."""
        taken_off = container in running.host.store.settings.names(TAKEN_OFF)
        return None if taken_off else running.elastic.copies_of(pid, started)

    return copies


def _make_disconnected(running: RunningMachine, contexts: ContextSizes) -> DisconnectedSessions:
    async def may_hold(session: Session) -> bool:
        """Say whether the process may hold memory; an unknown figure (None) counts as held."""
        held = await contexts.held_on_each(session.rows, session.pid)
        return any(size != 0 for size in held.values())

    return DisconnectedSessions(asyncio.get_running_loop(), running.shares, may_hold, running.lifecycle.end)


def _make_judge(
    running: RunningMachine, sampler: DeviceSampler, attributor: Attributor, settings: Settings
) -> RefusalJudge:
    return RefusalJudge(
        sampler,
        running.machine,
        running.sessions,
        attributor,
        running.capacities,
        audited=bool(settings.audit),
    )


def _make_device_sampler(running: RunningMachine, attributor: Attributor) -> DeviceSampler:
    machine, executor, least = running.machine, running.host.executor, running.capacities.least

    def limited(device: str) -> Iterable[str]:
        return machine.snapshot().on(device)

    ownerless = OwnerlessMemory(executor, running.sessions, limited, least, attributor.claims.unseen_on)
    return DeviceSampler(executor, ownerless)


def _make_audit(
    running: RunningMachine,
    sampler: DeviceSampler,
    attributor: Attributor,
    report: AuditReport,
    settings: Settings,
) -> tuple[Audit, UnlimitedContainers]:
    host = running.host
    rules = OveruseRules(settings.overuse, settings.overuse_after, settings.rules)
    ender = Ender(report.surviving)
    unlimited = UnlimitedContainers(running.history, report, rules, ender)
    holdings = HoldingsWriter(running.machine, running.sessions, host.store.volumes)
    learner = LimitLearner(running.driver, running.sessions, settings.learn, asyncio.get_running_loop().time)
    audit = Audit(
        sampler,
        running.driver,
        attributor,
        running.capacities,
        Enforcement(
            OveruseEnforcer(running.sessions, running.history, report, rules, ender),
            unlimited,
            Keepers(host.nodes, report),
            rules,
        ),
        (holdings.write, learner.learn, running.exports.write, running.lifecycle.tell_what_may_be_kept),
        report,
    )
    if settings.audit:
        audit.start(settings.audit)
        recount = Recount(audit.sample, running.driver, attributor, running.lifecycle.outliving)
        running.lifecycle.recount = recount.count
    return audit, unlimited
