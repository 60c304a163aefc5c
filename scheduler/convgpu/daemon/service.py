"""The scheduler put together: devices, machine, sockets, administration."""

import asyncio
import json
import logging
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
from convgpu.daemon.connection import Connection, Listener
from convgpu.daemon.containers import Containers
from convgpu.daemon.contexts import Contexts
from convgpu.daemon.devices import Device, DeviceError, Devices, NvmlDevices, find_nvml
from convgpu.daemon.history import History
from convgpu.daemon.options import DeviceCapacity
from convgpu.daemon.page import PageLibrary
from convgpu.daemon.processes import Processes
from convgpu.daemon.sessions import Sessions
from convgpu.daemon.settling import Settling
from convgpu.daemon.simulated import PREFIX, parse_devices, prepare_driver
from convgpu.daemon.store import Store
from convgpu.policies import POLICIES
from convgpu.protocol.messages import Admin, AdminReply, Message
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
        loop = asyncio.get_running_loop()
        _allow_many_descriptors()
        settings.directory.mkdir(parents=True, exist_ok=True)
        driver = settings.directory / "driver" if settings.devices.startswith(PREFIX) else None
        store = Store(settings.directory, settings.libraries / "libconvgpu.so", driver)
        devices = _open_devices(settings, driver)
        present = devices.list()
        if not present:
            raise DeviceError("the driver shows no device")
        recovering = any(volume.mounts for volume in store.load())
        capacities = _capacities(settings, present, recovering=recovering)
        machine = Machine(
            {one.uuid: one.capacity for one in capacities},
            POLICIES[settings.policy](),
            settings.patience,
            recovering=recovering,
        )
        self._sessions = Sessions(loop, machine, History(time.time), loop.time, time.time)
        self._settling = Settling(
            devices, [one.uuid for one in present], lambda number: self._sessions.happen(e.SettlingEnded(number))
        )
        self._sessions.on_left_behind = self._settling.watch
        pages = PageLibrary(settings.libraries / "libconvgpu-page.so")
        self._containers = Containers(loop, store, self._sessions, capacities)
        self._processes = Processes(
            loop, self._containers, self._sessions, Contexts(devices), pages, self._settling, time.time
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
        self._containers.restore(self._processes.accept)
        if recovering:
            log.info(
                "containers of an earlier run: no grants for %g s, so that their processes can come back", RECOVERY
            )
            loop.call_later(RECOVERY, self._sessions.happen, e.RecoveryEnded())
        self._admin = Listener(loop, settings.directory / "admin.sock", 0o600, self._accept_administrator)
        self._loop = loop
        for one in present:
            log.info("device %s %s capacity=%d", one.uuid, one.name, machine.ledger.capacity[one.uuid])

    def _accept_administrator(self, sock: socket.socket) -> None:
        Connection(self._loop, sock, self._administer, lambda _: None)

    def _administer(self, connection: Connection, request: int, message: Message) -> None:
        if isinstance(message, Admin):
            connection.send(AdminReply(self._administration.answer(message.body)), request)
        else:
            text = f"{type(message).__name__} on the administrators' socket"
            connection.fail(ProtocolError(Failure.ORDER, text, request))

    def close(self) -> None:
        """Close all sockets. What must survive is in files already."""
        self._admin.close()
        self._containers.close()
        self._processes.close()


def _open_devices(settings: Settings, driver: Path | None) -> Devices:
    if driver is not None:
        sizes = parse_devices(settings.devices)
        prepare_driver(driver, settings.simulated_driver, sizes, settings.simulated_settle)
        return NvmlDevices(driver / "libnvidia-ml.so.1")
    return NvmlDevices(find_nvml((settings.host_root, Path("/"))))


def _capacities(settings: Settings, present: Sequence[Device], *, recovering: bool) -> list[DeviceCapacity]:
    """Return what may be handed out: what is free now, less the reserve.

    While containers of an earlier run use memory, "free now" would count theirs as foreign; then the earlier
    figure is taken, which lies beside the state.
    """
    file = settings.directory / "capacity.json"
    earlier: dict[str, int] = json.loads(file.read_text()) if recovering and file.exists() else {}
    rows = []
    for device in present:
        capacity = earlier.get(device.uuid, device.free - settings.reserve)
        if capacity <= 0:
            log.error("device %s is left out: nothing of it is free", device.uuid)
            continue
        rows.append(DeviceCapacity(device.uuid, device.index, capacity))
    file.write_text(json.dumps({row.uuid: row.capacity for row in rows}))
    return rows


def _allow_many_descriptors() -> None:
    """Each process costs four descriptors; a thousand processes are to be possible."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
