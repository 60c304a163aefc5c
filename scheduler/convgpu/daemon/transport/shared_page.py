"""The page that the scheduler shares with one process (hook/include/convgpu/page.h).

Python has no atomic operations on shared memory, so they come from `libconvgpu-page.so`, which is built from the same
header as the hook.
"""

import ctypes
import fcntl
import mmap
import os
from pathlib import Path
from typing import Final

from convgpu.protocol.wire import PageAble

PAGE_SIZE: Final = 4096
MAX_DEVICES: Final = 63
NEVER: Final = 0xFFFFFFFF


class PageLibrary:
    """The functions of `libconvgpu-page.so`."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.init = self._function(library.convgpu_page_init, None, ctypes.c_uint32, ctypes.c_uint32)
        self.lease = self._function(library.convgpu_page_lease, None, ctypes.c_uint32, ctypes.c_uint64)
        self.lease_fixed = self._function(library.convgpu_page_lease_fixed, None, ctypes.c_uint32, ctypes.c_uint64)
        self.take_all = self._function(library.convgpu_page_take_all, ctypes.c_uint64, ctypes.c_uint32)
        self.read = self._function(library.convgpu_page_read, ctypes.c_uint64, ctypes.c_uint32)
        self.arm = self._function(library.convgpu_page_arm, None, ctypes.c_uint32, ctypes.c_int)
        limit = (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int)
        self.publish_limit = self._function(library.convgpu_page_publish, None, *limit)
        trace = (ctypes.c_uint32, ctypes.c_int, ctypes.c_uint32)
        self.trace = self._function(library.convgpu_page_trace, ctypes.c_uint32, *trace)
        self.able = self._function(library.convgpu_page_able, ctypes.c_uint32)
        self.notice = self._function(library.convgpu_page_notice, ctypes.c_uint32)

    @staticmethod
    def _function(function: "ctypes._FuncPointer", result: type | None, *arguments: type) -> "ctypes._FuncPointer":
        function.argtypes = [ctypes.c_void_p, *arguments]
        function.restype = result
        return function


class Page:
    """One page, in a memfd that neither side can shrink, so that the mapping never faults.

    `row` is a device's row in WELCOME; `flags`: `wire.PageFlag`.

    Raises:
        OSError: no memory or no descriptors left.
    """

    def __init__(self, library: PageLibrary, rows: int, flags: int = 0) -> None:
        self._library = library
        self.descriptor = os.memfd_create("convgpu", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, PAGE_SIZE)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
            self._map = mmap.mmap(self.descriptor, PAGE_SIZE)
        except OSError:
            os.close(self.descriptor)
            raise
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        library.init(self._address, rows, flags)

    def lease(self, row: int, size: int) -> None:
        """Add to the headroom."""
        self._library.lease(self._address, row, size)

    def lease_fixed(self, row: int, size: int) -> None:
        """Add to the bytes that may be memory that cannot leave the device."""
        self._library.lease_fixed(self._address, row, size)

    def take_all(self, row: int) -> int:
        """Empty the headroom slot, and return how many bytes it held."""
        return int(self._library.take_all(self._address, row))

    def read(self, row: int) -> int:
        """Return the headroom."""
        return int(self._library.read(self._address, row))

    def arm(self, row: int, *, armed: bool) -> None:
        """Set whether the process reports its next free."""
        self._library.arm(self._address, row, armed)

    def publish_limit(self, row: int, limit: int, *, alone: bool) -> None:
        """Publish the limit, from which the process answers queries about memory.

        Args:
            row: of the device.
            limit: of the container, in bytes.
            alone: whether no other process of the container has a session.
        """
        self._library.publish_limit(self._address, row, limit, alone)

    def trace(self, row: int, calls: int | None) -> int:
        """Let the process report so many accepted calls of a device, or none at all (None).

        Returns:
            calls that it made since the last time and only counted.
        """
        return int(self._library.trace(self._address, row, calls is not None, calls or 0))

    def is_able(self, what: PageAble) -> bool:
        """Say whether the process answers such a question."""
        return bool(self._library.able(self._address) & what)

    def notice(self) -> int:
        """Return after how many milliseconds the process wants a pause explained; 0: as usual; NEVER."""
        return int(self._library.notice(self._address))

    def close_descriptor(self) -> None:
        """Close our descriptor once the process has its own; the mapping lives as long as the page."""
        os.close(self.descriptor)
