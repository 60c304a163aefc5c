"""The CUDA driver by ctypes: what the programs beside this file need of it."""

import ctypes
import time

MIB = 1 << 20
GIB = 1 << 30
OUT_OF_MEMORY = 2


class CudaError(Exception):
    """A call failed; `result` is its CUresult."""

    def __init__(self, call: str, result: int) -> None:
        super().__init__(f"{call}: {result}")
        self.result = result


class Driver:
    """Device 0 and its primary context. `initialise` must come first; times in seconds."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: object) -> None:
        result = self.library[name](*arguments)
        if result:
            raise CudaError(name, result)

    def initialise(self) -> tuple[float, float]:
        """Return what cuInit and the first context took."""
        start = time.monotonic()
        self.call("cuInit", 0)
        initialised = time.monotonic()
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        retained = time.monotonic()
        self.call("cuCtxSetCurrent", context)
        return initialised - start, retained - initialised

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))
