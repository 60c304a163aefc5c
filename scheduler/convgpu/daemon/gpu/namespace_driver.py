"""What the program that asks within PID namespaces asks: the kernel's driver, or NVML."""

import ctypes
import os
from collections.abc import Sequence
from typing import Final

import pynvml

from convgpu.daemon.gpu.kernel_driver import KernelDriver
from convgpu.daemon.gpu.namespace_lists import NO_IDS
from convgpu.daemon.gpu.process_lists import listed_on, or_none

_libc: Final = ctypes.CDLL(None, use_errno=True)


class NamespaceDriver:
    """Tells what processes hold, by the pids that they have for who asks; the kernel's driver does, or NVML.

    Args:
        library: NVML.
        nowhere: a descriptor of an empty folder.
    """

    def __init__(self, library: str, nowhere: int) -> None:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)  # pynvml finds it by its soname
        pynvml.nvmlInit()
        self._nowhere = nowhere
        self._kernel: KernelDriver | None = None
        self._told: list[str] = []  # the devices that it tells of
        minors = (or_none(pynvml.nvmlDeviceGetMinorNumber, handle) for handle in _devices())
        try:
            kernel = KernelDriver(minor for minor in minors if minor is not None)
        except OSError:
            return  # NVML answers the same, and takes longer
        self._told = [uuid for uuid in kernel.devices if _tells(kernel, uuid)]  # a card that is lost is no reason
        self._kernel = kernel if self._told else None

    def held(self, pids: Sequence[int]) -> dict[str, dict[int, int]]:
        """Return the bytes by device and pid."""
        if self._kernel is not None:
            return {uuid: self._kernel.held(uuid, pids) for uuid in self._told}
        lists = {pynvml.nvmlDeviceGetUUID(handle): listed_on(handle) for handle in _devices()}
        chosen = {uuid: rows for uuid, rows in lists.items() if rows is not None}
        return {uuid: {pid: rows[pid] for pid in pids if pid in rows} for uuid, rows in chosen.items()}

    def search(self, pids: range) -> set[int]:
        """Return those of the pids that hold memory of any device."""
        if self._kernel is not None:
            return {pid for uuid in self._told for pid in self._kernel.search(uuid, pids)}
        return {pid for handle in _devices() for pid in listed_on(handle) or () if pid in pids}

    def begin_anew(self) -> None:
        """Go on in another process, which NVML does not without being told."""
        if self._kernel is None:
            pynvml.nvmlInit()

    def forget_files(self) -> None:
        """Give up all files but those that are open, where no more have to be opened."""
        if self._kernel is not None:
            os.fchdir(self._nowhere)
            os.chroot(".")
            _libc.setfsuid(NO_IDS[0])


def _tells(kernel: KernelDriver, uuid: str) -> bool:
    try:
        kernel.held(uuid, [os.getpid()])
    except OSError:
        return False
    return True


def _devices() -> list[object]:
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
