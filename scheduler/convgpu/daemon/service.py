"""The scheduler put together: devices, machine, sockets, administration."""

import asyncio
import fcntl
import logging
import math
import os
import resource
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from convgpu.core import events as e
from convgpu.core.recording.format import Header
from convgpu.core.volume_options import DeviceCapacity
from convgpu.daemon.admin_api.live_settings import Changes, chosen_policy, draw_seed
from convgpu.daemon.admin_api.server import Administration
from convgpu.daemon.admin_api.views import Views
from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.audit.capacity import Capacities, initial_capacities, measure_memory
from convgpu.daemon.audit.container_resolver import ContainerResolver
from convgpu.daemon.audit.holdings import HoldingsWriter
from convgpu.daemon.audit.loop import Audit
from convgpu.daemon.audit.overuse import OveruseEnforcer, OveruseRules
from convgpu.daemon.audit.refusals import RefusalJudge
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.containers.folders import Folders, make_staging
from convgpu.daemon.containers.reconciliation import Reconciliation
from convgpu.daemon.containers.registry import Containers
from convgpu.daemon.gpu.context_sizes import Contexts
from convgpu.daemon.gpu.nvml import Device, Devices, NvmlDevices, find_nvml
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.gpu.settling import Settling
from convgpu.daemon.gpu.simulated import PREFIX, parse_devices, prepare_driver
from convgpu.daemon.hook_api.server import Processes
from convgpu.daemon.machine_driver import MachineDriver, Record, record_nothing
from convgpu.daemon.sessions.disconnected import DisconnectedSessions
from convgpu.daemon.sessions.effects import EffectPerformer
from convgpu.daemon.sessions.lifecycle import SessionLifecycle
from convgpu.daemon.sessions.recovery import Recovery
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.storage.history import Bounds, History
from convgpu.daemon.storage.recorder import Recorder
from convgpu.daemon.storage.rows import DeviceMemory, PreviousSession
from convgpu.daemon.storage.store import Store
from convgpu.daemon.system.procfs import boot_id, containers_of, start_time
from convgpu.daemon.transport.connection import Connection, Listener
from convgpu.daemon.transport.shared_page import PageLibrary
from convgpu.protocol.layout import ADMIN_SOCKET_FILE, DRIVER_FOLDER, LIBRARY_FILE
from convgpu.protocol.messages import MAX_ADMIN_FRAME, Admin, AdminReply, Message
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.wire import Failure

log = logging.getLogger(__name__)

_WATCH: Final = 2.0  # seconds between looks at the lock file


@dataclass(frozen=True, slots=True)
class Settings:
    """See docs/architecture.md, Settings. `reserve` in bytes, `simulated_settle` in us/GiB.

    `starvation_timeout`, `audit`, `overuse_after` and `history_age` in seconds, `history_rows` in events.
    `record`: the file in which events are recorded, None for none.
    """

    directory: Path
    devices: str
    policy: str
    libraries: Path
    simulated_driver: Path
    simulated_settle: int
    host_root: Path
    reserve: int
    starvation_timeout: float
    audit: float
    overuse: str
    overuse_after: float
    history_age: float
    history_rows: int
    record: Path | None


class Service:
    """One scheduler. Construct it inside a running loop; `close` ends it.

    Raises:
        DeviceError: no devices.
        ValueError: a setting that cannot be.
        OSError: files cannot be read or written.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.broken = asyncio.Event()
        self._recorder: Recorder | None = None
        _allow_many_descriptors()
        settings.directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(settings.directory)
        self._watch = self._loop.call_later(_WATCH, self._watch_lock)
        driver = settings.directory / DRIVER_FOLDER if settings.devices.startswith(PREFIX) else None
        self._devices = _open_devices(settings, driver)
        self._asking = NvmlExecutor(self._devices)
        self._store = Store(settings.directory, boot_id(), self._loop.call_later)
        self._formers = self._find_formers()
        # A process may live though its container has no mount: `docker cp` unmounts a running one.
        recovering = bool(self._formers) or any(volume.state == "running" for volume in self._store.volumes.all())
        present = self._devices.list()
        strangers: set[int] = set()  # processes of our containers that are not in the book
        memory = self._measure(present, strangers)
        rows = initial_capacities(present, memory, settings.reserve)
        self._store.devices.set_all({device.uuid: device.name for device in present}, memory)
        folders = Folders(settings.directory, settings.libraries / LIBRARY_FILE, driver)
        self._make_machine(rows, recovering=recovering or bool(strangers))
        settling = self._watch_settling({one.device: one.own for one in memory})
        capacities = Capacities(self._driver, self._store.devices, settling, memory, rows, settings.reserve)
        self._containers = Containers(
            self._store.volumes, folders, self._driver, self._sessions, self._history, capacities.rows, time.time
        )
        self._processes = self._make_processes(settling, capacities.own)
        self._containers.restore(self._processes.accept, self._processes.forget)
        changes = Changes(
            self._containers,
            self._driver,
            self._sessions,
            self._history,
            self._store,
            capacities.rows,
            settings.policy,
        )
        changes.restore_targets()
        self._reconciliation = Reconciliation(self._containers, self._sessions, self._store.volumes, folders, time.time)
        report = AuditReport()
        self._audit = self._begin_audit(capacities, report)
        report.health |= {one.uuid: one.trouble for one in present if one.trouble}
        self._administration = Administration(
            self._containers,
            self._history,
            self._reconciliation,
            self._store,
            Views(self._containers, self._driver, self._sessions, present, capacities, report),
            changes,
            simulated=driver is not None,
        )
        self._recovery = self._begin_recovery(settling, not strangers) if recovering or strangers else None
        if self._recovery is None:
            self._begin_run()
        self._administration.on_nobody_runs = self._recovery.nobody_runs if self._recovery else lambda: None
        self._admin = Listener(
            self._loop, settings.directory / ADMIN_SOCKET_FILE, 0o600, folders.staging, self._accept_administrator
        )

    def _watch_lock(self) -> None:
        """End when the directory is not ours any more: files go nowhere, and another one may begin there."""
        path = self._settings.directory / "lock"
        try:
            ours = os.path.samestat(path.stat(), os.fstat(self._lock))
        except OSError:
            ours = False
        if ours:
            self._watch = self._loop.call_later(_WATCH, self._watch_lock)
        else:
            log.critical("%s was removed or replaced while this scheduler worked there: it ends", path)
            self.broken.set()

    def _find_formers(self) -> list[PreviousSession]:
        """Return the processes of an earlier run that live, and forget the others."""
        formers = self._store.sessions.all()
        alive = [one for one in formers if start_time(one.pid) == one.started]
        for one in set(formers) - set(alive):
            self._store.sessions.drop(one)
        return alive

    def _measure(self, present: Sequence[Device], strangers: set[int]) -> list[DeviceMemory]:
        formers = {one.pid for one in self._formers}
        engines = {volume.engine.id for volume in self._store.volumes.all() if volume.engine is not None}

        def is_ours(pid: int) -> bool:
            if pid in formers:
                return True
            ours = any(one in engines for one in containers_of(pid))
            if ours:
                strangers.add(pid)
            return ours

        return measure_memory(self._devices, present, self._settings.reserve, self._store.devices.memory(), is_ours)

    def _make_machine(self, rows: Sequence[DeviceCapacity], *, recovering: bool) -> None:
        """Begin with what devices have without foreign programs: what is decided has to be right when these end."""
        settings = self._settings
        header = Header(
            version=version("convgpu"),
            capacity={one.uuid: one.nominal for one in rows},
            policy=chosen_policy(self._store, settings.policy),
            seed=draw_seed(),
            starvation_timeout=None if math.isinf(settings.starvation_timeout) else settings.starvation_timeout,
            recovering=recovering,
        )
        machine = header.make_machine()
        self._history = History(time.time, self._store, Bounds(settings.history_rows, settings.history_age))
        self._sessions = SessionRegistry(machine)
        performer = EffectPerformer(machine, self._sessions, self._history, self._store.volumes)
        record = self._begin_recording(header)
        self._driver = MachineDriver(self._loop, machine, performer, self.broken.set, record)
        for one in rows:
            self._driver.dispatch(e.CapacityChanged(one.uuid, one.capacity))
        log.info("devices capacity=%s", {one.uuid: one.capacity for one in rows})

    def _begin_recording(self, header: Header) -> Record:
        if self._settings.record is None:
            return record_nothing
        self._recorder = Recorder(self._settings.record, self._loop.call_later)
        self._recorder.begin(header)
        return self._recorder.record

    def _watch_settling(self, own: dict[str, int]) -> Settling:
        return Settling(self._asking, own, lambda number: self._driver.dispatch(e.SettlingEnded(number)))

    def _make_processes(self, settling: Settling, own: Mapping[str, int]) -> Processes:
        previous = self._store.sessions
        lifecycle = SessionLifecycle(self._driver, self._sessions, self._history, settling, previous, time.time)
        contexts = Contexts(self._asking, own)

        async def holds(session: Session) -> bool:
            """Not known (None) is not nothing."""
            held = await asyncio.gather(*(contexts.held(uuid, session.pid) for uuid in session.rows))
            return any(size != 0 for size in held)

        return Processes(
            self._containers,
            self._driver.machine,
            self._sessions,
            lifecycle,
            contexts,
            PageLibrary(self._settings.libraries / "libconvgpu-page.so"),
            self._store.sessions,
            DisconnectedSessions(self._loop, holds, lifecycle.end),
            time.time,
        )

    def _begin_audit(self, capacities: Capacities, report: AuditReport) -> Audit:
        belonging = ContainerResolver(self._sessions, lambda: self._reconciliation.volume_of)
        attributor = Attributor(self._driver.machine, self._sessions, belonging)
        rules = OveruseRules(self._settings.overuse, self._settings.overuse_after)
        overuse = OveruseEnforcer(self._sessions, self._history, report, rules)
        holdings = HoldingsWriter(self._driver.machine, self._sessions, self._store.volumes)
        judge = RefusalJudge(
            self._asking,
            self._driver.machine,
            self._sessions,
            attributor,
            capacities,
            audited=bool(self._settings.audit),
        )
        self._processes.is_outside = judge.may_wait
        audit = Audit(self._asking, self._driver, attributor, capacities, overuse, holdings, report)
        if self._settings.audit:
            audit.start(self._settings.audit)
        return audit

    def _begin_recovery(self, settling: Settling, known: bool) -> Recovery:
        return Recovery(
            self._loop,
            self._formers,
            complete=self._store.sessions.complete and known,
            is_back=lambda one: self._sessions.find(one.container, one.pid, one.started) is not None,
            is_settled=settling.is_quiet,
            on_end=self._end_recovery,
            on_broken=self.broken.set,
        )

    async def _end_recovery(self, missing: Sequence[PreviousSession]) -> None:
        await self._processes.adopt(missing)
        if self._settings.audit:
            try:
                await self._audit.audit(at_once=True)  # what is in no book is charged before it can be granted
            except Exception:  # as in the audit itself
                log.exception("who holds memory without being known is not known")
        self._driver.dispatch(e.RecoveryEnded())
        log.info("grants are given")
        self._begin_run()

    def _begin_run(self) -> None:
        """From now on all processes are in the book, so that the next scheduler knows for whom to wait."""
        if all(session.pid for session in self._sessions.by_number.values()):
            try:
                self._store.sessions.mark_complete()
            except OSError as error:
                log.error("the next scheduler will wait longer for its processes: %s", error)

    def _accept_administrator(self, sock: socket.socket) -> None:
        Connection(self._loop, sock, self._administer, lambda _: None, MAX_ADMIN_FRAME)

    def _administer(self, connection: Connection, request: int, message: Message) -> None:
        if isinstance(message, Admin):
            self._administration.answer(message.body, lambda reply: connection.send(AdminReply(reply), request))
        else:
            text = f"{type(message).__name__} on the administrators' socket"
            connection.fail(ProtocolError(Failure.ORDER, text, request))

    def close(self) -> None:
        """Close all sockets; the processes keep what they have. What must survive is in files already."""
        self._driver.stop()
        if self._recorder is not None:
            self._recorder.close()
        self._watch.cancel()
        self._admin.close()
        self._containers.close()
        self._processes.close()
        self._audit.close()
        if self._recovery is not None:
            self._recovery.close()
        try:
            self._history.close()
        except OSError as error:
            log.error("the history has a gap: %s", error)
        self._store.close()


def _open_devices(settings: Settings, driver: Path | None) -> Devices:
    if driver is not None:
        sizes = parse_devices(settings.devices)
        staging = make_staging(settings.directory)
        prepare_driver(driver, settings.simulated_driver, staging, sizes, settings.simulated_settle)
        return NvmlDevices(driver / "libnvidia-ml.so.1")
    return NvmlDevices(find_nvml((settings.host_root, Path("/"))))


def _lock(directory: Path) -> int:
    """Return a descriptor that keeps other schedulers off the directory until this process ends.

    Raises:
        OSError: another one is at work there.
    """
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise OSError(f"another convgpud is at work in {directory}: stop it, or name another --directory") from error
    return descriptor


def _allow_many_descriptors() -> None:
    """Each process costs four descriptors; a thousand processes are to be possible."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
