"""The scheduler put together: devices, machine, sockets, administration."""

import asyncio
import fcntl
import logging
import os
import random
import resource
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.daemon.administration import Administration
from convgpu.daemon.capacity import measure_capacities
from convgpu.daemon.connection import Connection, Listener
from convgpu.daemon.containers import Containers
from convgpu.daemon.contexts import Contexts
from convgpu.daemon.detached import Detached
from convgpu.daemon.devices import Devices, NvmlDevices, find_nvml
from convgpu.daemon.files import deliver
from convgpu.daemon.history import History
from convgpu.daemon.options import DeviceCapacity
from convgpu.daemon.page import PageLibrary
from convgpu.daemon.processes import Processes
from convgpu.daemon.sessions import Sessions
from convgpu.daemon.settling import Settling
from convgpu.daemon.simulated import PREFIX, parse_devices, prepare_driver
from convgpu.daemon.store import PRELOAD, Store, make_staging
from convgpu.policies import POLICIES
from convgpu.protocol.messages import MAX_ADMIN_FRAME, Admin, AdminReply, Message
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.wire import Failure

log = logging.getLogger(__name__)

# Processes look for a new scheduler at least once a second; three chances each.
RECOVERY: Final = 3.0


@dataclass(frozen=True, slots=True)
class Settings:
    """See docs/architecture.md, Settings. `reserve` in bytes, `patience` in seconds, `simulated_settle` in us/GiB."""

    directory: Path
    devices: str
    policy: str
    libraries: Path
    simulated_driver: Path
    simulated_settle: int
    host_root: Path
    reserve: int
    patience: float


class Service:
    """One scheduler. Construct it inside a running loop; `close` ends it.

    Raises:
        DeviceError: no devices.
        ValueError: a setting that cannot be.
        OSError: files cannot be read or written.
    """

    def __init__(self, settings: Settings) -> None:
        self._loop = asyncio.get_running_loop()
        self.broken = asyncio.Event()
        _allow_many_descriptors()
        settings.directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(settings.directory)
        driver = settings.directory / "driver" if settings.devices.startswith(PREFIX) else None
        devices = _open_devices(settings, driver)
        store = Store(settings.directory, settings.libraries / "libconvgpu.so", driver)
        # The same for every container, so `convgpu run` mounts it from here.
        deliver(PRELOAD, settings.directory / "ld.so.preload", 0o644, store.staging)
        recovering = any(volume.mounts for volume in store.load())
        present = devices.list()
        capacities = measure_capacities(settings.directory, present, settings.reserve, recovering=recovering)
        self._sessions = self._make_sessions(settings, devices, capacities, recovering=recovering)
        self._containers = Containers(self._loop, store, self._sessions, capacities)
        self._processes = Processes(
            self._loop,
            self._containers,
            self._sessions,
            Contexts(devices),
            PageLibrary(settings.libraries / "libconvgpu-page.so"),
            Detached(self._loop, self._sessions.end),
            time.time,
        )
        self._administration = Administration(
            self._containers,
            self._sessions,
            present,
            capacities,
            time.time,
            policy=settings.policy,
            simulated=driver is not None,
        )
        self._containers.restore(self._processes.accept, self._processes.forget)
        self._admin = Listener(
            self._loop, settings.directory / "admin.sock", 0o600, store.staging, self._accept_administrator
        )

    def _make_sessions(
        self, settings: Settings, devices: Devices, capacities: Sequence[DeviceCapacity], *, recovering: bool
    ) -> Sessions:
        capacity = {one.uuid: one.capacity for one in capacities}
        machine = Machine(
            capacity, POLICIES[settings.policy](random.SystemRandom()), settings.patience, recovering=recovering
        )
        sessions = Sessions(self._loop, machine, History(time.time), self._loop.time, time.time)
        sessions.on_broken = self.broken.set
        settling = Settling(devices, capacity, lambda number: sessions.happen(e.SettlingEnded(number)))
        sessions.on_left_behind = settling.watch
        log.info("devices capacity=%s", capacity)
        if recovering:
            log.info("containers of an earlier run: no grants for %g s, until their processes are back", RECOVERY)
            self._loop.call_later(RECOVERY, sessions.happen, e.RecoveryEnded())
        return sessions

    def _accept_administrator(self, sock: socket.socket) -> None:
        Connection(self._loop, sock, self._administer, lambda _: None, MAX_ADMIN_FRAME)

    def _administer(self, connection: Connection, request: int, message: Message) -> None:
        if isinstance(message, Admin):
            connection.send(AdminReply(self._administration.answer(message.body)), request)
        else:
            text = f"{type(message).__name__} on the administrators' socket"
            connection.fail(ProtocolError(Failure.ORDER, text, request))

    def close(self) -> None:
        """Close all sockets; the processes keep what they have. What must survive is in files already."""
        self._sessions.stop()
        self._admin.close()
        self._containers.close()
        self._processes.close()


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
