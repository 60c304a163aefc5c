"""GPUs through NVML (NVIDIA Management Library API Reference)."""

import ctypes
import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pynvml

from convgpu.daemon.gpu.asked_in_turns import AskedInTurns
from convgpu.daemon.gpu.kernel_driver import KernelDriver
from convgpu.daemon.gpu.namespace_lists import (
    PATIENCE,
    PATIENCE_OF_SEARCH,
    NamespaceAnswer,
    NamespaceAsker,
    NamespaceQuestion,
)
from convgpu.daemon.gpu.process_lists import listed_on, or_none
from convgpu.daemon.system.procfs import processes
from convgpu.protocol.records import Telemetry

log = logging.getLogger(__name__)

# /dev/nvidiactl. A copy of a program's descriptor of it keeps the program's memory (docs/decisions/0177).
CONTROL_NODE: Final = (195, 255, None)
# The driver of managed memory, whose device has no number of its own (proc(5), /proc/devices).
_UVM: Final = re.compile(r"^ *([0-9]+) nvidia-uvm$", re.MULTILINE)
# Folders of libnvidia-ml.so.1, below a root folder: the plugin sees its host under another root.
_LIBRARY_FOLDERS: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/wsl/lib",
)

# The driver that compares IDs in the PID namespace of who asks.
_TOLD_BY_NAMESPACE: Final = 565

_HMM: Final = (
    "device %s: kernels reach memory of malloc (HMM); what of it lies on the card is nobody's: "
    "options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d ends that (docs/authorization.md, What no audit ends)"
)

# Seconds in which the kernel's driver is asked about all processes in one look.
_ASKING: Final = 0.25
# Seconds for which those are asked about who have ended; who is found to hold something is asked about for longer.
_ENDED_LATELY: Final = 10.0
_NOT_TOLD: Final = (
    "%s: only NVML tells who holds memory (%s): what a program has without a context, or imported and uses after its "
    "owner's end, is nobody's (docs/authorization.md, What no audit ends)"
)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. `total` and `free` in bytes, as found when the scheduler started.

    `trouble`: why it has no capacity (then the sizes may be 0), empty if nothing is wrong.
    """

    uuid: str
    index: int
    name: str
    total: int
    free: int
    trouble: str = ""


class Devices(Protocol):
    """The queries of the scheduler about GPUs. Each raises DeviceError when NVML has no answer."""

    def list(self) -> list[Device]:
        """Return the devices in NVML's order."""
        ...

    def total(self, uuid: str) -> int:
        """Return the total memory of a device, in bytes."""
        ...

    def used(self, uuid: str) -> int:
        """Return the bytes in use on a device by anyone, settling memory included."""
        ...

    def used_by(self, uuid: str) -> Mapping[int, int]:
        """Return the bytes that each process (pid as the scheduler sees it) holds on a device.

        Raises UnnamedError if the driver does not report it.
        """
        ...

    def note_ended(self, uuid: str, pid: int) -> None:
        """Have `used_by` ask about a process that has ended, for some seconds: others may keep what it had.

        NVML lists who has a context, and this one may have ended before anybody asked.
        """
        ...

    def imported_by(self, uuid: str, pids: Collection[int]) -> Mapping[int, int]:
        """Return the bytes of a device that processes imported from others, which `used_by` lists for their owners.

        Raises UnnamedError if the driver does not report it.
        """
        ...

    def used_inside(self, questions: Sequence[NamespaceQuestion]) -> Sequence[NamespaceAnswer]:
        """Return what processes hold, asked for within their PID namespaces: dead ones too, whoever has their pids now.

        Without questions who asks is ended.

        Raises UnnamedError if the driver does not tell them apart.
        """
        ...

    def search_inside(self, questions: Sequence[NamespaceQuestion]) -> Sequence[NamespaceAnswer]:
        """Return the same for whoever holds memory by a pid of a namespace; it may take seconds. See `used_inside`."""
        ...

    def telemetry(self, uuid: str) -> Telemetry:
        """Return what a device does; what it does not report is None."""
        ...

    def check(self, uuid: str) -> None:
        """Raise DeviceError if a device is in a mode in which it cannot be shared."""
        ...


class DeviceError(Exception):
    """NVML failed; the text names the fault and what to do."""


class UnnamedError(DeviceError):
    """This driver does not report memory by process."""


def find_nvml(roots: tuple[Path, ...]) -> Path | None:
    """Return the first libnvidia-ml.so.1 under one of the root folders."""
    places = (root / folder / "libnvidia-ml.so.1" for root in roots for folder in _LIBRARY_FOLDERS)
    return next((place for place in places if place.exists()), None)


def uvm_node(devices: Path = Path("/proc/devices")) -> tuple[int, int, None] | None:
    """Return the numbers of /dev/nvidia-uvm, None while the kernel has no such driver."""
    found = _UVM.search(devices.read_text())
    return (int(found[1]), 0, None) if found else None


class NvmlDevices:
    """Devices through NVML.

    Args:
        library: path of NVML; once it is loaded, pynvml finds it by its soname. None: the loader searches for it.

    Raises:
        DeviceError: the library cannot be loaded, or finds no driver.
    """

    def __init__(self, library: Path | None) -> None:
        try:
            if library is not None:
                ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
            pynvml.nvmlInit()
        except (OSError, pynvml.NVMLError) as error:
            raise DeviceError(
                f"no NVIDIA driver: {error}; install it, or try ConvGPU without a card: CONVGPU_DEVICES=simulated:16GiB"
            ) from error
        self._library = str(library or "libnvidia-ml.so.1")
        self._namespaces = NamespaceAsker(self._library)
        self._search = NamespaceAsker(self._library)
        self._holding: dict[str, AskedInTurns] = {}  # by device
        self._ended: dict[str, dict[int, float]] = {}  # likewise: who ended, and when
        self._handles: dict[str, object] = {}
        self._indices: dict[str, int] = {}
        self._kernels: dict[str, KernelDriver | OSError] = {}  # by device: a client hangs with the card it asks about
        self._asking: dict[str, threading.Lock] = defaultdict(threading.Lock)  # of those
        self._not_told: set[str] = set()  # devices of which that was logged

    def list(self) -> list[Device]:
        """Return the devices in NVML's order; a device without a handle, UUID or name is logged and left out."""
        found = []
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise DeviceError(f"NVML does not count the devices: {error}; see what nvidia-smi says") from error
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = pynvml.nvmlDeviceGetUUID(handle)
                name = pynvml.nvmlDeviceGetName(handle)
            except pynvml.NVMLError as error:
                log.error("device %d is left out: %s; see what nvidia-smi says, and start again", index, error)
                continue
            self._handles[uuid], self._indices[uuid] = handle, index
            try:
                self.check(uuid)
                memory = self._memory(uuid)
            except DeviceError as error:
                found.append(Device(uuid, index, name, 0, 0, str(error)))
                continue
            if or_none(pynvml.nvmlDeviceGetAddressingMode, handle) == pynvml.NVML_DEVICE_ADDRESSING_MODE_HMM:
                log.warning(_HMM, uuid)
            found.append(Device(uuid, index, name, int(memory.total), int(memory.free)))
        return found

    def _memory(self, uuid: str) -> Any:
        try:
            return pynvml.nvmlDeviceGetMemoryInfo(self._handles[uuid])
        except pynvml.NVMLError as error:
            raise DeviceError(f"memory of {uuid}: {error}") from error

    def total(self, uuid: str) -> int:
        """See Devices."""
        return int(self._memory(uuid).total)

    def used(self, uuid: str) -> int:
        """See Devices."""
        return int(self._memory(uuid).used)

    def used_by(self, uuid: str) -> Mapping[int, int]:
        """See Devices. NVML lists only who has a context, so the kernel's driver is asked as well."""
        try:
            held = listed_on(self._handles[uuid])
        except pynvml.NVMLError_NotSupported as error:
            raise UnnamedError(f"processes of {uuid}: {error}") from error
        except pynvml.NVMLError as error:
            raise DeviceError(f"processes of {uuid}: {error}") from error
        if held is None:
            raise UnnamedError(f"processes of {uuid}: what they hold is not available")
        with suppress(UnnamedError):
            # Who ended meanwhile, and whose memory somebody keeps, has its pid still for the driver.
            asked = held.keys() | processes()
            ended = self._ended_lately(uuid)
            more = self._ask_kernel(uuid, lambda kernel: self._in_turns(uuid, kernel).held(asked, ended))
            held |= {pid: max(size, held.get(pid, 0)) for pid, size in more.items()}
        return held

    def note_ended(self, uuid: str, pid: int) -> None:
        """See Devices. Threads ask meanwhile."""
        self._ended.setdefault(uuid, {})[pid] = time.monotonic()

    def _ended_lately(self, uuid: str) -> set[int]:
        since = time.monotonic() - _ENDED_LATELY
        rows = self._ended.setdefault(uuid, {})
        for pid, at in list(rows.items()):
            if at < since:
                rows.pop(pid, None)
        return set(rows)

    def _in_turns(self, uuid: str, kernel: KernelDriver) -> AskedInTurns:
        if uuid not in self._holding:
            self._holding[uuid] = AskedInTurns(lambda pids: kernel.held(uuid, pids), _ASKING, time.monotonic)
        return self._holding[uuid]

    def used_inside(self, questions: Sequence[NamespaceQuestion]) -> Sequence[NamespaceAnswer]:
        """See Devices."""
        return self._ask_inside(self._namespaces, questions, PATIENCE)

    def search_inside(self, questions: Sequence[NamespaceQuestion]) -> Sequence[NamespaceAnswer]:
        """See Devices."""
        return self._ask_inside(self._search, questions, PATIENCE_OF_SEARCH)

    def _ask_inside(
        self, asker: NamespaceAsker, questions: Sequence[NamespaceQuestion], patience: float
    ) -> Sequence[NamespaceAnswer]:
        """Drivers before 565 compare the ID within the namespace with that on the host."""
        version = or_none(pynvml.nvmlSystemGetDriverVersion) or ""
        if (major := re.match(r"\d+", version)) and int(major[0]) < _TOLD_BY_NAMESPACE:
            raise UnnamedError(f"driver {version} lists no processes by PID namespace: {_TOLD_BY_NAMESPACE} does")
        try:
            return asker.ask(questions, patience)
        except OSError as error:
            raise DeviceError(f"NVML does not tell what it lists within PID namespaces: {error}") from error

    def imported_by(self, uuid: str, pids: Collection[int]) -> Mapping[int, int]:
        """See Devices. NVML does not tell it, so the kernel's driver is asked."""
        try:
            return self._ask_kernel(uuid, lambda kernel: kernel.imported(uuid, pids))
        except UnnamedError as error:
            raise UnnamedError(f"imported memory of {uuid}: {error}") from error

    def _ask_kernel(self, uuid: str, question: Callable[[KernelDriver], dict[int, int]]) -> dict[int, int]:
        with self._asking[uuid]:
            kernel = self._kernels.get(uuid)
            if kernel is None:
                kernel = self._kernels[uuid] = self._open_kernel_driver(uuid)
            if isinstance(kernel, OSError):
                raise UnnamedError(str(kernel))
            try:
                return question(kernel)
            except (OSError, KeyError) as error:
                self._say_not_told(uuid, error)
                raise UnnamedError(str(error)) from error

    def _say_not_told(self, uuid: str, error: Exception) -> None:
        if uuid not in self._not_told:
            self._not_told.add(uuid)
            log.info(_NOT_TOLD, uuid, error)

    def _open_kernel_driver(self, uuid: str) -> KernelDriver | OSError:
        minor = or_none(pynvml.nvmlDeviceGetMinorNumber, self._handles[uuid])
        try:
            return KernelDriver([] if minor is None else [minor])
        except OSError as error:
            self._say_not_told(uuid, error)
            return error

    def telemetry(self, uuid: str) -> Telemetry:
        """See Devices. Cards and virtual GPUs differ in what they report, so each figure is asked for by itself."""
        handle = self._handles[uuid]
        utilization = or_none(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power = or_none(pynvml.nvmlDeviceGetPowerUsage, handle)
        limit = or_none(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        return Telemetry(
            utilization=None if utilization is None else int(utilization.gpu),
            temperature=or_none(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            power=None if power is None else power / 1000,  # NVML: milliwatts
            power_limit=None if limit is None else limit / 1000,
        )

    def check(self, uuid: str) -> None:
        """See Devices. In MIG mode each part of a card has its own limit, and its processes are counted elsewhere."""
        try:
            current, _pending = pynvml.nvmlDeviceGetMigMode(self._handles[uuid])
        except pynvml.NVMLError:  # most cards do not support it; other faults show in other calls
            return
        if current:
            remedy = f"nvidia-smi -i {self._indices[uuid]} -mig 0"
            raise DeviceError(f"MIG mode is on, and ConvGPU shares whole devices: {remedy}")
