"""What the driver tells a program within a PID namespace (`namespace_program`); of a lost device it tells nothing."""

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import pynvml

from convgpu.daemon.gpu.kernel_driver import KernelDriver
from convgpu.daemon.gpu.namespace_lists import NO_IDS, Lists
from convgpu.daemon.gpu.process_lists import listed_on, or_none

# Seconds for which pids are searched at a time. Each takes some 20 ns for each client of the driver: four million take
# 0.8 s with one client, and minutes with some thousand.
_SLICE: Final = 1.0
# Pids after which the time is looked at.
_PART: Final = 2000
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
        minors = (or_none(pynvml.nvmlDeviceGetMinorNumber, handle) for handle in _devices())
        try:
            kernel = KernelDriver(minor for minor in minors if minor is not None)
            _of_each(kernel, lambda uuid: kernel.held(uuid, [os.getpid()]))
            self._kernel = kernel
        except OSError:
            pass  # NVML answers the same, and takes longer

    def held(self, pids: Sequence[int]) -> Lists:
        """Return the bytes by device and pid; a device is left out of which the driver does not tell.

        Raises:
            OSError: it tells of none.
        """
        if (kernel := self._kernel) is not None:
            return _of_each(kernel, lambda uuid: kernel.held(uuid, pids))
        return {uuid: {pid: rows[pid] for pid in pids if pid in rows} for uuid, rows in _listed().items()}

    def search(self, most: int, first: int) -> tuple[Lists, int]:
        """Return what pids below `most` hold, in bytes by device, from the first one on and around.

        Returns:
            That, and how many were asked about: as many as there is time for.

        Raises:
            OSError: the driver tells of no device.
        """
        if (kernel := self._kernel) is None:
            rows = _listed()
            return {
                uuid: {pid: size for pid, size in one.items() if 0 < pid < most} for uuid, one in rows.items()
            }, most
        found: Lists = {}
        at, left, until = first % most, most, time.monotonic() + _SLICE
        while left and (left == most or time.monotonic() < until):
            part = range(at, min(at + _PART, at + left, most))
            asked = range(max(part.start, 1), part.stop)
            found = combine(max, found, _of_each(kernel, partial(_search, kernel, asked)))
            at, left = part.stop % most, left - len(part)
        return found, most - left

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


def _search(kernel: KernelDriver, pids: range, uuid: str) -> dict[int, int]:
    return kernel.search(uuid, pids)


def _of_each(kernel: KernelDriver, ask: Callable[[str], dict[int, int]]) -> dict[str, dict[int, int]]:
    """Return what the driver tells of each device; one can be lost, and then it refuses, and tells of the others."""
    found, refused = dict[str, dict[int, int]](), None
    for uuid in kernel.devices:
        try:
            found[uuid] = ask(uuid)
        except OSError as error:
            refused = error
    if refused is not None and not found:
        raise refused
    return found


def _devices() -> Iterator[object]:
    """Return NVML's devices; there is no handle of a lost one."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        if (handle := or_none(pynvml.nvmlDeviceGetHandleByIndex, index)) is not None:
            yield handle


def _listed() -> Lists:
    """Return NVML's lists of the devices of which it tells."""
    found: Lists = {}
    for handle in _devices():
        with suppress(pynvml.NVMLError):
            uuid, rows = pynvml.nvmlDeviceGetUUID(handle), listed_on(handle)
            found = found if rows is None else {**found, uuid: rows}
    return found


def combine(choose: Callable[[int, int], int], one: Lists, other: Lists) -> dict[str, dict[int, int]]:
    """Return the larger or the smaller of each two figures; who is missing holds nothing."""
    found = {}
    for device in one.keys() | other.keys():
        rows, more = one.get(device, {}), other.get(device, {})
        found[device] = {pid: choose(rows.get(pid, 0), more.get(pid, 0)) for pid in rows.keys() | more.keys()}
    return found
