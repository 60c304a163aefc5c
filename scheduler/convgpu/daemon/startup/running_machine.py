"""The second stage of a start: the machine runs, with its sessions, its history and the capacities of its devices."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.oversubscription import Oversubscription
from convgpu.core.placement import ReuseBounded
from convgpu.core.recording.format import Header
from convgpu.daemon.admin_api.live_settings import chosen_placement, chosen_policy, draw_seed
from convgpu.daemon.audit.capacity import Capacities, is_lost
from convgpu.daemon.gpu.ending import EndingProcesses
from convgpu.daemon.gpu.kept_memory import KeptMemory
from convgpu.daemon.gpu.settling import Settling
from convgpu.daemon.machine_driver import MachineDriver, record_nothing
from convgpu.daemon.residency.elastic_sessions import ElasticSessions
from convgpu.daemon.residency.porter import Porter
from convgpu.daemon.sessions.allocation_lister import AllocationLister
from convgpu.daemon.sessions.call_tracer import CallTracer
from convgpu.daemon.sessions.effects import EffectPerformer
from convgpu.daemon.sessions.export_records import ExportRecords
from convgpu.daemon.sessions.inspection import Inspection
from convgpu.daemon.sessions.lifecycle import EndedMemory, SessionLifecycle
from convgpu.daemon.sessions.open_requests import OpenRequests
from convgpu.daemon.sessions.outliving import OutlivingMemory
from convgpu.daemon.sessions.pause_notices import PauseNotices
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.settings import Settings
from convgpu.daemon.startup.memory_moves import plan_oversubscription, prepare_moves
from convgpu.daemon.startup.opened_host import OpenedHost
from convgpu.daemon.storage.history import Bounds, History
from convgpu.daemon.storage.recorder import Recorder
from convgpu.daemon.system.descriptors import Descriptors
from convgpu.daemon.system.native_claims import SafetyLibrary
from convgpu.daemon.transport.shares import Shares

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningMachine:
    """A machine that handles events. It grants nothing yet when the host needs recovery."""

    host: OpenedHost
    history: History
    sessions: SessionRegistry
    driver: MachineDriver
    settling: Settling
    lifecycle: SessionLifecycle
    inspection: Inspection
    capacities: Capacities
    exports: ExportRecords
    recorder: Recorder | None
    elastic: ElasticSessions
    porter: Porter
    shares: Shares
    oversubscription: Oversubscription
    notices: PauseNotices

    @property
    def machine(self) -> Machine:
        """The machine, to be read."""
        return self.driver.machine

    def stop(self) -> None:
        """Handle no further event, and close the recording. The porter runs on."""
        self.driver.stop()
        if self.recorder is not None:
            self.recorder.close()


def start_machine(host: OpenedHost, settings: Settings, on_failure: Callable[[], None]) -> RunningMachine:
    """Start a machine with the nominal capacities, and tell it what of them may be handed out now."""
    loop, store, header = asyncio.get_running_loop(), host.store, _describe_machine(host, settings)
    # What is decided must stay right when external memory is freed, so it has to know the nominal capacities first.
    machine = _make_machine(header, settings)
    history = History(time.time, store, Bounds(settings.history_rows, settings.history_age))
    sessions = SessionRegistry(machine, OpenRequests(shares := Shares(loop)))
    notices = PauseNotices(loop, sessions, settings.notice)
    ending = EndingProcesses(machine)
    performer = EffectPerformer(machine, sessions, history, store.volumes, notices, ending)
    recorder = _begin_recording(header, settings)
    driver = MachineDriver(loop, machine, performer, on_failure, recorder.record if recorder else record_nothing)
    terms = plan_oversubscription(host, settings)
    _tell_capacities(host, driver, terms)
    elastic, porter = prepare_moves(host, driver, sessions, settings, terms)
    own, rows = {figures.device: figures.own for figures in host.memory}, host.capacities
    settling = Settling(host.executor, own, lambda number: lifecycle.settle(number), ending.end)  # noqa: PLW0108 - below
    outliving = OutlivingMemory(driver, most_copies=Descriptors().limit // 4)
    kept = KeptMemory(machine, host.executor, outliving.left_on, driver.dispatch, settings.audit)
    ended = EndedMemory(settling, outliving, ending, kept)
    lifecycle = SessionLifecycle(driver, sessions, history, ended, store.sessions, time.time, shares)
    performer.move, performer.hold, performer.look = elastic.perform, lifecycle.hold, lifecycle.look
    return RunningMachine(
        host=host,
        history=history,
        sessions=sessions,
        driver=driver,
        settling=settling,
        lifecycle=lifecycle,
        inspection=Inspection(AllocationLister(sessions), CallTracer(sessions, history, time.time)),
        capacities=Capacities(driver, store.devices, settling, host.memory, rows, settings.reserve, outliving),
        exports=ExportRecords(driver, outliving, sessions, store.settings, audited=bool(settings.audit)),
        recorder=recorder,
        elastic=elastic,
        porter=porter,
        shares=shares,
        oversubscription=terms,
        notices=notices,
    )


def _tell_capacities(host: OpenedHost, driver: MachineDriver, terms: Oversubscription) -> None:
    for row in host.capacities:
        driver.dispatch(e.CapacityChanged(row.uuid, row.capacity, is_lost=is_lost(row.trouble)))
    log.info("devices capacity=%s", {row.uuid: row.capacity for row in host.capacities})
    for row in host.capacities if terms.granule else ():
        driver.dispatch(ReuseBounded(row.uuid, terms.reuse_count(row.uuid)))


def _make_machine(header: Header, settings: Settings) -> Machine:
    machine = header.make_machine()
    machine.use_tables(SafetyLibrary(settings.libraries / "libconvgpu-safety.so").make_table)
    return machine


def _describe_machine(host: OpenedHost, settings: Settings) -> Header:
    """Return what a machine is made of, which is also the first line of a recording."""
    return Header(
        version=_own_version(),
        capacity={row.uuid: row.nominal for row in host.capacities},
        policy=chosen_policy(host.store, settings.policy),
        seed=draw_seed(),
        starvation_timeout=None if math.isinf(settings.starvation_timeout) else settings.starvation_timeout,
        recovering=host.needs_recovery,
        switch_cost=settings.switch_cost,
        eviction=settings.eviction,
        placement=chosen_placement(host.store, settings.placement),
    )


def _own_version() -> str:
    """Return the package's version; `unknown` where the code runs without being installed, as tests/gpu does it."""
    try:
        return version("convgpu")
    except PackageNotFoundError:
        return "unknown"


def _begin_recording(header: Header, settings: Settings) -> Recorder | None:
    if settings.record is None:
        return None
    recorder = Recorder(settings.record, asyncio.get_running_loop().call_later)
    recorder.begin(header)
    return recorder
