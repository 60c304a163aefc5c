"""Says what each device that the program sees is, and how much of the first can be had. Runs in a container.

`devices.py cuda | nvml`: with nvml, NVML is initialised first, as vLLM does. Sizes in bytes. SIGUSR1 ends it.
"""

import ctypes
import json
import signal
import sys
import uuid

from driver import GIB, OUT_OF_MEMORY, CudaError, Driver


def describe(driver: Driver, ordinal: int) -> dict[str, object]:
    name, total = (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    driver.call("cuDeviceGetUuid_v2", name, ordinal)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(total), ordinal)
    return {"uuid": f"GPU-{uuid.UUID(bytes=bytes(name))}", "total": total.value}


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if sys.argv[1] == "nvml":
        ctypes.CDLL("libnvidia-ml.so.1")["nvmlInit_v2"]()
    driver = Driver()
    driver.call("cuInit", 0)
    count = ctypes.c_int()
    driver.call("cuDeviceGetCount", ctypes.byref(count))
    devices = [describe(driver, ordinal) for ordinal in range(count.value)]
    driver.initialise()
    taken = 0
    try:
        while True:
            driver.allocate(GIB)
            taken += GIB
    except CudaError as error:
        refused = error.result == OUT_OF_MEMORY
    print(json.dumps({"event": "full", "devices": devices, "taken": taken, "refused": refused}), flush=True)
    signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    main()
