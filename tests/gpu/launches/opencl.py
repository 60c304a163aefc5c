"""Takes so many bytes by OpenCL, in a process that has a CUDA context behind the hook; stays until it is ended.

    opencl.py BYTES

Exit status 77 without OpenCL, or where it shows no GPU. Without a loader (libOpenCL.so.1), or where the loader was not
told of NVIDIA's part (OCL_ICD_VENDORS, /etc/OpenCL/vendors), that part is called by its table of functions, whose order
is that of cl_icd_dispatch.
"""

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from calls import Cuda

ABSENT = 77
LOADER, VENDOR = "libOpenCL.so.1", "libnvidia-opencl.so.1"
GPU, READ_WRITE, BLOCKING = 1 << 2, 1, 1
PART = 1 << 29
ORDER = {"clGetDeviceIDs": 2, "clCreateContext": 4, "clCreateCommandQueue": 9, "clCreateBuffer": 14}
ORDER |= {"clFinish": 47, "clEnqueueWriteBuffer": 49}
RETURNS_HANDLE = {"clCreateContext", "clCreateCommandQueue", "clCreateBuffer"}


class OpenCl:
    """The first GPU of a library's first platform; OSError if there is none."""

    def __init__(self, name: str) -> None:
        self._library, self.name = ctypes.CDLL(name), name
        self.platform, self.device = c_void_p(), c_void_p()
        if self._first()(1, byref(self.platform), None) != 0 or not self.platform:
            raise OSError(name)
        if self.call("clGetDeviceIDs", self.platform, c_uint64(GPU), 1, byref(self.device), None) != 0:
            raise OSError(name)  # CL_DEVICE_NOT_FOUND

    def _first(self) -> Callable[..., int]:
        """Return the function that names the platforms: NVIDIA's part gives it as an extension (cl_khr_icd)."""
        if self.name == LOADER:
            return self._library["clGetPlatformIDs"]
        address = self._library["clGetExtensionFunctionAddress"]
        address.restype = c_void_p
        return ctypes.CFUNCTYPE(c_int, c_uint, c_void_p, c_void_p)(address(b"clIcdGetPlatformIDsKHR"))

    def call(self, name: str, *arguments: object) -> int:
        """Return what a call returned: a status, or a handle."""
        kind = c_void_p if name in RETURNS_HANDLE else c_int
        if self.name == LOADER:
            function = self._library[name]
            function.restype = kind
            return int(function(*arguments) or 0)
        table = ctypes.cast(self.platform, ctypes.POINTER(ctypes.POINTER(c_void_p)))[0]
        return int(ctypes.CFUNCTYPE(kind)(table[ORDER[name]] or 0)(*arguments) or 0)


def take(opencl: OpenCl, size: int) -> None:
    """Make buffers, and write to them: before that the driver takes nothing."""
    device, status = opencl.device, c_int()
    context = c_void_p(opencl.call("clCreateContext", None, c_uint(1), byref(device), None, None, byref(status)))
    assert status.value == 0, status
    queue = c_void_p(opencl.call("clCreateCommandQueue", context, device, c_uint64(0), byref(status)))
    assert status.value == 0, status
    word = c_uint(1)
    for _part in range(size // PART):
        made = opencl.call("clCreateBuffer", context, c_uint64(READ_WRITE), c_size_t(PART), None, byref(status))
        assert status.value == 0, status
        where = (queue, c_void_p(made), c_uint(BLOCKING), c_size_t(0), c_size_t(4))
        assert opencl.call("clEnqueueWriteBuffer", *where, byref(word), c_uint(0), None, None) == 0
    assert opencl.call("clFinish", queue) == 0


def first_with_gpu() -> OpenCl:
    """Return what shows a GPU: the loader, or NVIDIA's part."""
    for name in (LOADER, VENDOR):
        with suppress(OSError):
            return OpenCl(name)
    sys.exit(ABSENT)


def main() -> None:
    """Take it, say so, and stay."""
    Cuda()
    opencl = first_with_gpu()
    take(opencl, int(sys.argv[1]))
    print(opencl.name, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
