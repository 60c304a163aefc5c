"""Gives memory away as RDMA wants it (a dma-buf), and by the older IPC. JSON lines on stdout.

Reports what the driver answered; after SIGUSR1 whether its memory holds what was written.
"""

import ctypes
import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

from driver import MIB, Driver

SIZE = 64 * MIB
DMA_BUF = 1
IPC_HANDLE = 64  # bytes


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    driver = Driver()
    driver.initialise()
    blocks = [driver.allocate(SIZE) for _ in range(3)]
    for number, block in enumerate(blocks, 1):
        driver.call("cuMemsetD8_v2", ctypes.c_uint64(block), ctypes.c_ubyte(number), ctypes.c_size_t(SIZE))
    descriptor, handle = ctypes.c_int(-1), ctypes.create_string_buffer(IPC_HANDLE)
    size, kind, flags = ctypes.c_size_t(SIZE), ctypes.c_int(DMA_BUF), ctypes.c_ulonglong(0)
    address_range = driver.library["cuMemGetHandleForAddressRange"]
    given = address_range(ctypes.byref(descriptor), ctypes.c_uint64(blocks[0]), size, kind, flags)
    older = driver.library["cuIpcGetMemHandle"](handle, ctypes.c_uint64(blocks[1]))
    print(json.dumps({"dma-buf": given, "descriptor": descriptor.value >= 0, "older IPC": older}), flush=True)
    signal.sigwait({signal.SIGUSR1})
    seen = ctypes.create_string_buffer(SIZE)
    right = []
    for number, block in enumerate(blocks, 1):
        driver.call("cuMemcpyDtoH_v2", seen, ctypes.c_uint64(block), ctypes.c_size_t(SIZE))
        right.append(seen.raw == bytes([number]) * SIZE)
    print(json.dumps(right), flush=True)


if __name__ == "__main__":
    main()
