"""Asks NVIDIA's kernel driver what NVML does not tell: memory that a process has without a context, or has imported.

It tells, too, what NVML does, without the 20 ms that NVML takes to begin: within a container 0.3 ms are enough then.

NVML lists who has a context. Who speaks to the driver without its libraries has memory without one (4 GiB on an H200,
listed for nobody). The driver has a list of clients, too, but of 950 at most, and not of those without a subdevice; of
each pid it tells what that holds, so it is asked about all of them.

A process that imported memory (`cuMemImportFromShareableHandle`) uses it also after its owner's end; while anybody else
keeps it too, NVML lists it for nobody. The driver counts it for each process, in the answer from which NVML takes its
own figures (`NV2080_CTRL_GPU_PID_INFO`, open-gpu-kernel-modules, src/common/sdk/nvidia/inc/ctrl/ctrl2080/
ctrl2080gpu.h). These requests are no promised interface (seen on driver 580). One of another layout is refused by its
size, and then nothing is known.
"""

import ctypes
import fcntl
import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Final

_RM_CONTROL: Final = 0x2A  # NV_ESC_RM_CONTROL
_RM_ALLOC: Final = 0x2B  # NV_ESC_RM_ALLOC
_ROOT_CLASS: Final = 0x41  # NV01_ROOT_CLIENT
_DEVICE_CLASS: Final = 0x80  # NV01_DEVICE_0
_SUBDEVICE_CLASS: Final = 0x2080  # NV20_SUBDEVICE_0
_ATTACHED_IDS: Final = 0x201  # NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
_ID_INFO: Final = 0x205  # NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
_GID_INFO: Final = 0x2080014A  # NV2080_CTRL_CMD_GPU_GET_GID_INFO
_PID_INFO: Final = 0x2080018E  # NV2080_CTRL_CMD_GPU_GET_PID_INFO
_MOST_GPUS: Final = 32
_NO_GPU: Final = 0xFFFFFFFF
_MOST_PIDS: Final = 200
_FIRST_HANDLE: Final = 0xC0970001

_u32, _u64 = ctypes.c_uint32, ctypes.c_uint64


class _Alloc(ctypes.Structure):  # NVOS21_PARAMETERS
    _fields_ = (
        *((name, _u32) for name in ("root", "parent", "handle", "kind")),
        ("parameters", _u64),
        *((name, _u32) for name in ("size", "status")),
    )


class _Control(ctypes.Structure):  # NVOS54_PARAMETERS
    _fields_ = (
        *((name, _u32) for name in ("client", "handle", "command", "flags")),
        ("parameters", _u64),
        *((name, _u32) for name in ("size", "status")),
    )


class _DeviceParameters(ctypes.Structure):  # NV0080_ALLOC_PARAMETERS
    _fields_ = (("instance", _u32), ("share", _u32 * 4), ("space", _u64 * 3), ("mode", _u32))


class _IdInfo(ctypes.Structure):  # NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS
    _fields_ = (("gpu", _u32), ("flags", _u32), ("device", _u32), ("subdevice", _u32), ("more", _u32 * 4))


class _GidInfo(ctypes.Structure):  # NV2080_CTRL_GPU_GET_GID_INFO_PARAMS
    _fields_ = (("index", _u32), ("flags", _u32), ("length", _u32), ("data", ctypes.c_char * 256))


class _Usage(ctypes.Structure):  # NV2080_CTRL_GPU_PID_INFO
    _fields_ = (
        *((name, _u32) for name in ("pid", "index", "result")),
        *((name, _u64) for name in ("private", "owned", "imported")),
        ("protected", _u64 * 3),
        ("part", _u32 * 2),
    )


class _PidInfo(ctypes.Structure):
    _fields_ = (("count", _u32), ("rows", _Usage * _MOST_PIDS))


# In words: the first row, a row, and where in it the sizes stand that a process holds.
_FIRST_ROW: Final = _PidInfo.rows.offset // 4
_ROW: Final = ctypes.sizeof(_Usage) // 4
_SIZES: Final = tuple(field.offset // 4 + half for field in (_Usage.private, _Usage.owned) for half in (0, 1))


class KernelDriver:
    """A client of the driver that only asks; used by one thread at a time.

    Args:
        minors: of the GPUs' nodes. The driver tells of a GPU only who has its node open.

    Raises:
        OSError: there is no driver, or it does not take these requests.
    """

    def __init__(self, minors: Iterable[int]) -> None:
        self._handles = 0
        with ExitStack() as opened:
            self._descriptor = _open("/dev/nvidiactl", opened)
            for minor in minors:
                _open(f"/dev/nvidia{minor}", opened)
            self._root = self._allocate(0, _ROOT_CLASS, None)
            self._subdevices: dict[str, int] = {}
            for gpu in self._gpus():
                with suppress(OSError):  # it is not ours to use, or lost: nobody tells of it then
                    self._open_gpu(gpu)
            self._opened = opened.pop_all()

    def imported(self, uuid: str, pids: Iterable[int]) -> dict[int, int]:
        """Return what each process has of a device's memory that it imported, in bytes; who has none is left out.

        Raises:
            OSError: the driver does not say.
            KeyError: it does not know the device.
        """
        return {row.pid: row.imported for row in self._usages(uuid, pids) if row.imported}

    def held(self, uuid: str, pids: Iterable[int]) -> dict[int, int]:
        """Return what each process holds of a device's memory, as NVML lists it, by the pid that it has for who asks.

        Raises:
            OSError: the driver does not say.
            KeyError: it does not know the device.
        """
        return {row.pid: row.private + row.owned for row in self._usages(uuid, pids) if row.private + row.owned}

    def search(self, uuid: str, pids: range) -> dict[int, int]:
        """Return what each of these pids holds of a device's memory, also those of the dead whose memory is kept.

        In bytes; who holds nothing is left out.

        The driver looks at each of its clients for each pid: some 20 ns.

        Args:
            uuid: of the device.
            pids: one after the other.

        Raises:
            OSError: the driver does not say.
            KeyError: it does not know the device.
        """
        found: dict[int, int] = {}
        for first in pids[::_MOST_PIDS]:
            part = range(first, min(first + _MOST_PIDS, pids.stop))
            info = _PidInfo(count=len(part))
            words = memoryview(info).cast("B").cast("I")
            rows = slice(_FIRST_ROW, _FIRST_ROW + len(part) * _ROW, _ROW)
            words[rows] = array("I", part)
            self._control(self._subdevices[uuid], _PID_INFO, info)
            sizes = (words[rows.start + at : rows.stop : _ROW].tobytes() for at in _SIZES)
            if any(size.strip(b"\0") for size in sizes):
                rows_told = (row for row in info.rows[: len(part)] if row.result == 0)
                found |= {row.pid: row.private + row.owned for row in rows_told if row.private + row.owned}
        return found

    @property
    def devices(self) -> Iterable[str]:
        """The devices that it tells of."""
        return self._subdevices.keys()

    def _usages(self, uuid: str, pids: Iterable[int]) -> Iterator[_Usage]:
        asked = list(pids)
        for first in range(0, len(asked), _MOST_PIDS):
            part = asked[first : first + _MOST_PIDS]
            info = _PidInfo(count=len(part))
            for row, pid in enumerate(part):
                info.rows[row].pid = pid
            self._control(self._subdevices[uuid], _PID_INFO, info)
            yield from (row for row in info.rows[: len(part)] if row.result == 0)

    def close(self) -> None:
        """Close the client; the driver frees what it made."""
        self._opened.close()

    def _gpus(self) -> list[int]:
        found = (_u32 * _MOST_GPUS)()
        self._control(self._root, _ATTACHED_IDS, found)
        return [gpu for gpu in found if gpu != _NO_GPU]

    def _open_gpu(self, gpu: int) -> None:
        info, name = _IdInfo(gpu=gpu), _GidInfo()
        self._control(self._root, _ID_INFO, info)
        device = self._allocate(self._root, _DEVICE_CLASS, _DeviceParameters(instance=info.device))
        subdevice = self._allocate(device, _SUBDEVICE_CLASS, _u32(info.subdevice))
        self._control(subdevice, _GID_INFO, name)
        self._subdevices[name.data.decode("ascii", "replace")] = subdevice

    def _allocate(self, parent: int, kind: int, parameters: ctypes.Structure | ctypes.c_uint32 | None) -> int:
        root = self._root if parent else 0
        wanted = _FIRST_HANDLE + self._handles if parent else 0
        request = _Alloc(root=root, parent=parent, handle=wanted, kind=kind)
        if parameters is not None:
            request.parameters, request.size = ctypes.addressof(parameters), ctypes.sizeof(parameters)
        self._handles += 1
        self._ask(_RM_ALLOC, request, f"class {kind:#x}")
        return int(request.handle)

    def _control(self, handle: int, command: int, parameters: ctypes.Structure | ctypes.Array[ctypes.c_uint32]) -> None:
        request = _Control(client=self._root, handle=handle, command=command)
        request.parameters, request.size = ctypes.addressof(parameters), ctypes.sizeof(parameters)
        self._ask(_RM_CONTROL, request, f"request {command:#x}")

    def _ask(self, number: int, request: _Alloc | _Control, what: str) -> None:
        # _IOWR('F', number, request), asm-generic/ioctl.h
        fcntl.ioctl(self._descriptor, 3 << 30 | ctypes.sizeof(request) << 16 | ord("F") << 8 | number, request)
        if request.status:
            raise OSError(None, f"the NVIDIA driver refuses {what}: status {request.status:#x}")


def _open(path: str, opened: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor
