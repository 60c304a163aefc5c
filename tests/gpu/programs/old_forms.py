"""Calls the 32-bit forms of CUDA 2, which have no suffix. Runs in a container.

Reports the CUresult of each (null: the driver has no such symbol) and waits for SIGUSR1 with what they gave.
"""

import ctypes
import json
import signal

from driver import MIB, Driver

SIZE = 1024 * MIB


def call(driver: Driver, name: str, *arguments: object) -> int | None:
    try:
        return driver.library[name](*arguments)
    except AttributeError:
        return None


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    driver = Driver()
    driver.initialise()
    address, pitch = ctypes.c_uint32(), ctypes.c_uint32()
    side = ctypes.c_uint32(SIZE >> 15)
    print(json.dumps({"event": "context"}), flush=True)
    signal.sigwait({signal.SIGUSR1})
    context = ctypes.c_void_p()
    results = {
        "cuCtxCreate": call(driver, "cuCtxCreate", ctypes.byref(context), 0, 0),
        "cuMemAlloc": call(driver, "cuMemAlloc", ctypes.byref(address), ctypes.c_uint32(SIZE)),
        "cuMemAllocPitch": call(
            driver, "cuMemAllocPitch", ctypes.byref(address), ctypes.byref(pitch), ctypes.c_uint32(1 << 15), side, 4
        ),
    }
    print(json.dumps({"event": "asked", "results": results, "address": address.value}), flush=True)
    signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    main()
