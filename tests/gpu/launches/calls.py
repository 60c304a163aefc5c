"""The driver by ctypes, as the programs beside this file call it."""

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY = 0, 1, 2
STACK, PRINTF, HEAP = range(3)
PENDING = 4
LOCAL_SIZE = 3
GLOBAL = 2
FLOAT = 0x20  # CU_AD_FORMAT_FLOAT
SPARSE = 0x40  # CUDA_ARRAY3D_SPARSE
ABSENT = 77  # the exit status of a program of what is not there


Answer = tuple[str, int]
"""A call, and its CUresult."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("shape", c_uint * 6),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("n", c_uint),
    )


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = (
        ("function", c_void_p),
        ("shape", c_uint * 6),
        ("shared", c_uint),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        *((name, c_int) for name in ("kind", "handles", "location", "ordinal")),
        *(("security", c_void_p), ("most", c_size_t), ("rest", c_uint64 * 7)),
    )


class AllocationNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = (
        *(("pool", PoolProperties), ("access", c_void_p), ("access_count", c_size_t)),
        *(("size", c_size_t), ("address", c_uint64)),
    )


class ConditionalNode(ctypes.Structure):
    """CUgraphNodeParams of a conditional node."""

    _fields_ = (
        ("node_type", c_int),
        ("reserved", c_int * 3),
        ("handle", c_uint64),
        ("condition", c_int),
        ("count", c_uint),
        ("bodies", ctypes.POINTER(c_void_p)),
        ("context", c_void_p),
        ("rest", c_uint64 * 26),
    )


def sparse_shape(edge: int) -> "ctypes.Array[c_size_t]":
    """Return a CUDA_ARRAY3D_DESCRIPTOR of a sparse array of so many by as many elements of 16 bytes."""
    return (c_size_t * 5)(edge, edge, 0, FLOAT | 4 << 32, SPARSE)


class CudaError(Exception):
    """A call failed that must not."""


class Cuda:
    """Device 0 with a context. `simulated`: the driver is a simulated one."""

    def __init__(self) -> None:
        self.simulated = bool(os.environ.get("CONVGPU_SIMULATED"))
        self.library = ctypes.CDLL("libcuda.so.1")
        self.must("cuInit", 0)
        context = c_void_p()
        self.must("cuDevicePrimaryCtxRetain", byref(context), 0)
        self.must("cuCtxSetCurrent", context)
        self.out = c_uint64()
        self.must("cuMemAlloc_v2", byref(self.out), c_size_t(4096))
        at = c_uint(0)
        self._kept = (at,)
        self.parameters = (c_void_p * 2)(ctypes.addressof(self.out), ctypes.addressof(at))

    def call(self, name: str, *arguments: object) -> int:
        """Return the CUresult."""
        return int(self.library[name](*arguments))

    def must(self, name: str, *arguments: object) -> None:
        """Call it.

        Raises:
            CudaError: it failed.
        """
        result = self.call(name, *arguments)
        if result:
            raise CudaError(f"{name}: {result}")

    def load(self, image: bytes, library: bool) -> tuple[int, c_void_p]:
        """Load a module or a library; return the result and the handle."""
        made = c_void_p()
        if library:
            return self.call("cuLibraryLoadData", byref(made), image, None, None, 0, None, None, 0), made
        return self.call("cuModuleLoadData", byref(made), image), made

    def function(self, owner: c_void_p, name: bytes, library: bool) -> c_void_p:
        """Return a function of a module, or a kernel of a library."""
        found = c_void_p()
        self.must("cuLibraryGetKernel" if library else "cuModuleGetFunction", byref(found), owner, name)
        return found

    def launch(self, function: c_void_p, form: str = "cuLaunchKernel", stream: c_void_p | None = None) -> int:
        """Launch one block of one thread by that call; return its result, or that of the work."""
        if form.startswith("cuLaunchKernelEx"):
            one = LaunchConfig((c_uint * 6)(1, 1, 1, 1, 1, 1), 0, stream)
            result = self.call(form, byref(one), function, self.parameters, None)
        else:
            extra = [] if "Cooperative" in form else [None]
            result = self.call(form, function, *[c_uint(1)] * 6, c_uint(0), stream, self.parameters, *extra)
        return result if result or stream else self.call("cuCtxSynchronize")

    def stream(self) -> c_void_p:
        """Make a stream."""
        made = c_void_p()
        self.must("cuStreamCreate", byref(made), 1)
        return made

    def limit(self, kind: int, size: int) -> int:
        """Set a limit of the context; return the result."""
        return self.call("cuCtxSetLimit", c_int(kind), c_size_t(size))

    def allocate(self, size: int) -> tuple[int, c_uint64]:
        """Allocate; return the result and the address."""
        address = c_uint64()
        return self.call("cuMemAlloc_v2", byref(address), c_size_t(size)), address
