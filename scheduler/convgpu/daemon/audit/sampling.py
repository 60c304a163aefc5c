"""Samples of the memory of devices, taken through NVML."""

from convgpu.core.audit.attribution import MemorySample
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.system.procfs import is_alive, start_time


async def take_sample(executor: NvmlExecutor, uuid: str) -> MemorySample:
    """Return a sample of one device; when NVML fails or does not answer in time, the sample carries the error."""
    try:
        return await executor.ask(uuid, sample_device)
    except DeviceError as error:
        return MemorySample(uuid, error=str(error))


def sample_device(devices: Devices, uuid: str) -> MemorySample:
    """Ask NVML about one device. It is no error when the driver does not tell which process holds what."""
    try:
        devices.check(uuid)
        total, used = devices.total(uuid), devices.used(uuid)
    except DeviceError as error:
        return MemorySample(uuid, error=str(error))
    try:
        held = devices.used_by(uuid)
    except DeviceError:
        return MemorySample(uuid, total, used)
    starts = {pid: start for pid in held if is_alive(pid) and (start := start_time(pid))}
    living = {pid: size for pid, size in held.items() if pid in starts}
    ended = {pid: size for pid, size in held.items() if pid not in starts}
    return MemorySample(uuid, total, used, living, ended=ended, starts=starts)
