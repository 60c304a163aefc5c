"""What NVML tells here of device 0, as one line of JSON; without any package."""

import ctypes
import json


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Process(ctypes.Structure):
    """nvmlProcessInfo_t of the lists' third version."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    ]


def main() -> None:
    """Ask and say."""
    nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    memory, rows, count = Memory(), (Process * 64)(), ctypes.c_uint(64)
    for result in (
        nvml.nvmlInit_v2(),
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)),
        nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)),
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), rows),
    ):
        if result:
            raise SystemExit(f"NVML: error {result}")
    processes = [[rows[row].pid, rows[row].used] for row in range(count.value)]
    print(json.dumps({"total": memory.total, "free": memory.free, "used": memory.used, "processes": processes}))


if __name__ == "__main__":
    main()
