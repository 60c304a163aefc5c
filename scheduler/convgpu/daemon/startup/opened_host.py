"""The first stage of a start: the directory is locked, the database open, and the devices are measured."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from convgpu.core.volume_options import DeviceCapacity
from convgpu.daemon.audit.capacity import initial_capacities, measure_memory
from convgpu.daemon.containers.folders import Folders, make_staging
from convgpu.daemon.gpu.nvml import CONTROL_NODE, Device, Devices, NvmlDevices, find_nvml, uvm_node
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.gpu.simulated import CONTROL_FILE, PREFIX, parse_devices, prepare_driver
from convgpu.daemon.sessions.recovery import living_sessions
from convgpu.daemon.settings import Settings
from convgpu.daemon.storage.rows import DeviceMemory, PreviousSession
from convgpu.daemon.storage.store import Store
from convgpu.daemon.system.directory_lock import DirectoryLock
from convgpu.daemon.system.open_files import FileIdentity, identify
from convgpu.daemon.system.procfs import boot_id, containers_of
from convgpu.protocol.layout import DRIVER_FOLDER, LIBRARY_FILE


@dataclass(frozen=True, slots=True)
class OpenedHost:
    """What the scheduler found on its host before it decides anything.

    Attributes:
        lock: of the directory.
        nvml: answers about devices.
        executor: asks it from now on.
        store: the database.
        folders: of containers.
        devices: that are present.
        memory: their memory figures.
        capacities: what may be handed out of each.
        previous: processes of an earlier scheduler that live.
        has_unregistered: whether processes of our containers hold memory without being known from an earlier scheduler.
        simulated: whether the driver is simulated.
        control: the node that all who use the driver have open.
    """

    lock: DirectoryLock
    nvml: Devices
    executor: NvmlExecutor
    store: Store
    folders: Folders
    devices: Sequence[Device]
    memory: Sequence[DeviceMemory]
    capacities: Sequence[DeviceCapacity]
    previous: Sequence[PreviousSession]
    has_unregistered: bool
    simulated: bool
    control: FileIdentity | None

    def nodes(self) -> set[FileIdentity]:
        """Return the nodes by which programs call the driver; a module of the kernel may be loaded any time."""
        return {node for node in (self.control, None if self.simulated else uvm_node()) if node is not None}

    @property
    def needs_recovery(self) -> bool:
        """Whether a process may still hold memory. It may live though its container has no mount (`docker cp`)."""
        runs = any(volume.state == "running" for volume in self.store.volumes.all())
        return bool(self.previous) or runs or self.has_unregistered

    @property
    def knows_all_previous(self) -> bool:
        """Whether every process that may hold memory is among the previous sessions."""
        return self.store.sessions.complete and not self.has_unregistered


def open_host(settings: Settings) -> OpenedHost:
    """Lock the directory, open the devices and the database, and measure.

    Raises:
        DeviceError: no devices.
        ValueError: a setting that cannot be.
        OSError: files cannot be read or written, or another scheduler works in the directory.
    """
    lock = DirectoryLock(settings.directory)
    try:
        return _open_locked(settings, lock)
    except BaseException:
        lock.release()
        raise


def _open_locked(settings: Settings, lock: DirectoryLock) -> OpenedHost:
    driver = settings.directory / DRIVER_FOLDER if settings.devices.startswith(PREFIX) else None
    devices = _open_devices(settings, driver)
    store = Store(settings.directory, boot_id(), asyncio.get_running_loop().call_later)
    previous = living_sessions(store.sessions)
    unregistered: set[int] = set()
    present = devices.list()
    is_ours = _recognizer(store, previous, unregistered)
    memory = measure_memory(devices, present, settings.reserve, store.devices.memory(), is_ours)
    capacities = initial_capacities(present, memory, settings.reserve)
    store.devices.set_all({device.uuid: device.name for device in present}, memory)
    return OpenedHost(
        lock=lock,
        nvml=devices,
        executor=NvmlExecutor(devices),
        store=store,
        folders=Folders(settings.directory, settings.libraries / LIBRARY_FILE, driver),
        devices=present,
        memory=memory,
        capacities=capacities,
        previous=previous,
        has_unregistered=bool(unregistered),
        simulated=driver is not None,
        control=CONTROL_NODE if driver is None else identify(str(driver / CONTROL_FILE)),
    )


def _open_devices(settings: Settings, driver: Path | None) -> Devices:
    if driver is None:
        return NvmlDevices(find_nvml((settings.host_root, Path("/"))))
    sizes = parse_devices(settings.devices)
    staging = make_staging(settings.directory)
    prepare_driver(driver, settings.simulated_driver, staging, sizes, settings.simulated_settle)
    return NvmlDevices(driver / "libnvidia-ml.so.1")


def _recognizer(store: Store, previous: Sequence[PreviousSession], unregistered: set[int]) -> Callable[[int], bool]:
    """Return what says whether a pid belongs to a container; it adds those without a previous session to a set."""
    known = {process.pid for process in previous}
    engine_ids = {volume.engine.id for volume in store.volumes.all() if volume.engine is not None}

    def is_ours(pid: int) -> bool:
        if pid in known:
            return True
        ours = any(container_id in engine_ids for container_id in containers_of(pid))
        if ours:
            unregistered.add(pid)
        return ours

    return is_ours
