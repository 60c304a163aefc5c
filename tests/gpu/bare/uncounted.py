"""What does the driver take for each process, and list for none? By what the process has. Needs root and a card.

python3 tests/gpu/bare/uncounted.py [COUNT]
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pynvml

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scheduler"))
sys.path.insert(0, str(ROOT / "tests/gpu/programs/raw"))

from raw_client import take  # noqa: E402

from convgpu.daemon.gpu.kernel_driver import KernelDriver  # noqa: E402

MIB = 1 << 20


def initialise() -> ctypes.CDLL:
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    return cuda


def retain() -> ctypes.CDLL:
    cuda, context = initialise(), ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 == cuda.cuCtxSetCurrent(context)
    return cuda


def allocate(size: int, pieces: int = 1) -> None:
    cuda, address = retain(), ctypes.c_uint64()
    for _ in range(pieces):
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size // pieces)) == 0


KINDS: Mapping[str, Callable[[], object]] = {
    "cuInit": initialise,
    "a device, without a context": lambda: take(0),
    "2 MiB without a context": lambda: take(2 * MIB),
    "64 MiB without a context": lambda: take(64 * MIB),
    "a context": retain,
    "a context and 2 MiB": lambda: allocate(2 * MIB),
    "a context and 1 GiB": lambda: allocate(1024 * MIB),
    "a context and 1 GiB in pieces of 2 MiB": lambda: allocate(1024 * MIB, 512),
}


def begin(has: Callable[[], object]) -> int:
    """Begin a process that has that, and return its pid once it does."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            has()
            os.write(writing, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"x", "it has failed"
    os.close(reading)
    return pid


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    kernel = KernelDriver([pynvml.nvmlDeviceGetMinorNumber(card)])
    [uuid] = kernel.devices
    keeper = begin(initialise)  # else the driver may unload what it has for itself
    for name, has in KINDS.items():
        before = pynvml.nvmlDeviceGetMemoryInfo(card).used
        pids = [begin(has) for _ in range(count)]
        used = pynvml.nvmlDeviceGetMemoryInfo(card).used - before
        told = sum(kernel.held(uuid, pids).values())
        listed = {row.pid: row.usedGpuMemory for row in pynvml.nvmlDeviceGetComputeRunningProcesses(card)}
        row = {"used": used, "told": told, "listed": sum(listed.get(pid, 0) for pid in pids)}
        print(json.dumps({"kind": name} | {key: round(size / count / MIB, 2) for key, size in row.items()}), flush=True)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        until = time.monotonic() + 20
        while pynvml.nvmlDeviceGetMemoryInfo(card).used > before and time.monotonic() < until:
            time.sleep(0.05)
    os.kill(keeper, signal.SIGKILL)


main()
