"""The probe in the doctor's containers, plain Python of the host: allocates through the driver's entry points.

Self-contained: an interpreter gets it as text. `entry-points LIMIT` tries an allocation beyond the limit and one within
it through each entry point, and prints the sizes that the driver and NVML show; `hold SIZE` allocates and holds until
its stdin ends; of size 0 what is left of the limit. `idle 0` uses no GPU. `compare SIZE` fills memory and compares it
again and again. One JSON object per line.
"""

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

SMALL = 16 << 20  # bytes of an allocation that fits
UUID_BYTES = 16


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory on device 0."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class NvmlMemory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def say(**fields: Any) -> None:
    """Print one report."""
    print(json.dumps(fields), flush=True)


def demand(error: int, call: str) -> None:
    """End unless a call succeeded."""
    if error != 0:
        say(event="failed", call=call, error=error)
        sys.exit(1)


def start() -> Any:
    """Return the driver's library, with a context on the first device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        say(event="failed", call=f"dlopen: {error}", error=-1)
        sys.exit(1)
    demand(cuda.cuInit(0), "cuInit")
    context = ctypes.c_void_p()
    demand(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    demand(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    return cuda


def allocation(function: Any, release: Any) -> Any:
    """Return a try of `function(address, size)`: its error, with whatever it gave given back."""

    def attempt(size: int) -> Any:
        address = ctypes.c_ulonglong()
        error = function(ctypes.byref(address), ctypes.c_size_t(size))
        return error or release(address)

    return attempt


def entry_points(cuda: Any) -> Any:
    """Return the entry points by name, each a function from a size to the driver's error."""
    release = cuda.cuMemFree_v2
    found = {
        "linked symbol": allocation(ctypes.CDLL(None).cuMemAlloc_v2, release) if preloaded() else None,
        "dlsym": allocation(cuda.cuMemAlloc_v2, release),
    }
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    for name, extra in (("cuGetProcAddress", ()), ("cuGetProcAddress_v2", (ctypes.byref(ctypes.c_int()),))):
        pointer = ctypes.c_void_p()
        version = ctypes.c_ulonglong(0)
        if not hasattr(cuda, name):
            continue
        error = getattr(cuda, name)(b"cuMemAlloc", ctypes.byref(pointer), 12000 if extra else 11030, version, *extra)
        if error == 0 and pointer.value:
            found[name] = allocation(prototype(pointer.value), release)
    managed, pitch, create = cuda.cuMemAllocManaged, cuda.cuMemAllocPitch_v2, cuda.cuMemCreate
    found["cuMemAllocManaged"] = allocation(lambda address, size: managed(address, size, 1), release)
    stride = ctypes.byref(ctypes.c_size_t())
    rows = ctypes.c_size_t(1 << 10)
    found["cuMemAllocPitch"] = allocation(
        lambda address, size: pitch(address, stride, ctypes.c_size_t(size.value >> 10), rows, 4), release
    )
    wish = Properties(type=1, location=Location(1, 0))
    found["cuMemCreate"] = allocation(
        lambda address, size: create(address, size, ctypes.byref(wish), ctypes.c_ulonglong(0)), cuda.cuMemRelease
    )
    stream = ctypes.c_void_p(0)
    found["cuMemAllocAsync"] = allocation(
        lambda address, size: cuda.cuMemAllocAsync(address, size, stream),
        lambda address: cuda.cuMemFreeAsync(address, stream) or cuda.cuCtxSynchronize(),
    )
    return {name: attempt for name, attempt in found.items() if attempt is not None}


def preloaded() -> bool:
    """Say whether the library is loaded into this process."""
    return "/libconvgpu.so" in Path("/proc/self/maps").read_text()


def uuids(cuda: Any) -> Any:
    """Return the UUIDs of the devices that the driver shows."""
    count = ctypes.c_int()
    demand(cuda.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    result = []
    for ordinal in range(count.value):
        raw = (ctypes.c_ubyte * UUID_BYTES)()
        demand(cuda.cuDeviceGetUuid(ctypes.byref(raw), ordinal), "cuDeviceGetUuid")
        text = bytes(raw).hex()
        result.append("GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
    return result


def nvml_total(uuid: str) -> Any:
    """Return the size of the device by NVML, None if NVML gives none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    device, memory = ctypes.c_void_p(), NvmlMemory()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
        return None
    return memory.total if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0 else None


def try_entry_points(limit: int) -> None:
    """Report the errors of each entry point, and the sizes that are shown."""
    cuda = start()
    found = uuids(cuda)
    total = ctypes.c_size_t()
    demand(cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0), "cuDeviceTotalMem")
    over = (limit + SMALL) & ~(SMALL - 1)
    tried = {name: [attempt(over), attempt(SMALL)] for name, attempt in entry_points(cuda).items()}
    say(
        event="entry-points",
        preloaded=preloaded(),
        entry_points=tried,
        uuids=found,
        total=total.value,
        nvml=nvml_total(found[0]),
    )


def left(cuda: Any) -> int:
    """Return the bytes that the driver shows as free, less what libraries take later, in whole large pages."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    demand(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    return int(max(free.value - 4 * SMALL, SMALL) >> 21 << 21)


def hold(size: int) -> None:
    """Take memory and keep it until stdin ends."""
    cuda = start()
    size = size or left(cuda)
    say(event="asks")
    address = ctypes.c_ulonglong()
    demand(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), "cuMemAlloc")
    say(event="holds")
    sys.stdin.read()
    say(event="ends")


def idle(_size: int) -> None:
    """Leave the GPU to others of the container until stdin ends."""
    say(event="holds")
    sys.stdin.read()


def compare(size: int) -> None:
    """Fill memory with two values, and compare all of it until somebody ends this."""
    cuda = start()
    address, half = ctypes.c_ulonglong(), size // 2
    demand(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), "cuMemAlloc")
    second = ctypes.c_ulonglong(address.value + half)
    demand(cuda.cuMemsetD8_v2(address, ctypes.c_ubyte(0x5A), ctypes.c_size_t(half)), "cuMemsetD8")
    demand(cuda.cuMemsetD8_v2(second, ctypes.c_ubyte(0xA5), ctypes.c_size_t(size - half)), "cuMemsetD8")
    buffer = ctypes.create_string_buffer(size)
    expected = b"\x5a" * half + b"\xa5" * (size - half)
    while True:
        demand(cuda.cuMemcpyDtoH_v2(buffer, address, ctypes.c_size_t(size)), "cuMemcpyDtoH")
        say(event="compared", right=buffer.raw == expected)
        time.sleep(0.2)


if __name__ == "__main__":
    verbs = {"entry-points": try_entry_points, "hold": hold, "idle": idle, "compare": compare}
    verbs[sys.argv[1]](int(sys.argv[2]))
