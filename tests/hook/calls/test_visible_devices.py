"""Limits are kept by UUID, however a program's CUDA numbers the devices, and whether it asks NVML or CUDA first."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import GIB, Daemon, running_daemon

LIMITS = (1, 2, 3)
"""GiB of each device."""
CONTEXT = 526 << 20
NO_DEVICE, INVALID_DEVICE = 100, 101

PROGRAM = """
import ctypes, json, sys
def nvml():
    import pynvml as n
    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(index) for index in range(n.nvmlDeviceGetCount())]
    memory = [n.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
    return [one.total >> 30 for one in memory], [one.used for one in memory]
def cuda():
    lib, count, size, free = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    result = lib.cuInit(0)
    if result:
        return result
    lib.cuDeviceGetCount(ctypes.byref(count))
    seen = []
    for ordinal in range(count.value):
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        assert lib.cuDeviceTotalMem_v2(ctypes.byref(size), ordinal) == 0
        total = size.value >> 30
        assert lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal) == 0
        assert lib.cuCtxSetCurrent(context) == 0
        assert lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size.value)) == 2  # with a context, too much
        assert lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(total * 100 << 20)) == 0
        assert lib.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(size)) == 0
        seen.append([total, size.value >> 30, (size.value - free.value) - (total * 100 << 20)])
    return seen
order = sys.argv[1]
answers = {}
if order == "nvml first":
    answers["before"] = nvml()
answers["cuda"] = cuda()
answers["after"] = nvml()
print(json.dumps(answers), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("visible") / "d", "simulated:4GiB,6GiB,8GiB") as running:
        yield running


@pytest.fixture(scope="module")
def uuids(daemon: Daemon) -> list[str]:
    return [str(device["uuid"]) for device in daemon.admin.request("devices")["devices"]]


@pytest.fixture(scope="module")
def folder(daemon: Daemon, uuids: list[str]) -> Path:
    memory = ",".join(f"{uuid}:{limit}g" for uuid, limit in zip(uuids, LIMITS, strict=True))
    return daemon.container("a", memory=memory)


CASES: list[tuple[str | None, list[int] | int]] = [
    (None, [0, 1, 2]),
    ("0,1,2", [0, 1, 2]),
    ("1", [1]),
    ("2,0", [2, 0]),
    ("2,1,0", [2, 1, 0]),
    ("{1}", [1]),
    ("{2},{0}", [2, 0]),
    ("{1:.12}", [1]),
    ("{2:.12},{1:.9}", [2, 1]),
    ("1,7,0", [1]),  # the first invalid entry ends the list
    ("{0},GPU-nobody,{1}", [0]),
    ("-1", NO_DEVICE),
    ("7", NO_DEVICE),
    ("", NO_DEVICE),
    ("GPU-nobody", NO_DEVICE),
    ("0,0", INVALID_DEVICE),
]


@pytest.mark.parametrize("order", ["nvml first", "cuda first"])
@pytest.mark.parametrize(("visible", "expected"), CASES)
def test_limits_go_with_the_device(
    daemon: Daemon, folder: Path, uuids: list[str], order: str, visible: str | None, expected: list[int] | int
) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": str(folder / "libconvgpu.so"),
        "LD_LIBRARY_PATH": str(folder / "driver"),
    }
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible.format(*uuids)
    command, pipe = [sys.executable, "-c", PROGRAM, order], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        answers = json.loads(process.stdout.readline())
        devices = {device["uuid"]: device["usage"] for device in daemon.state("a")["devices"]}
        process.stdin.close()
    assert process.returncode == 0
    ordinals = expected if isinstance(expected, list) else []
    used = [CONTEXT + (LIMITS[row] * 100 << 20) if row in ordinals else 0 for row in range(3)]
    seen = [[LIMITS[row], LIMITS[row], CONTEXT] for row in ordinals]
    # NVML knows all devices, whatever CUDA shows.
    assert answers["after"] == [list(LIMITS), used]
    assert answers["cuda"] == (seen if isinstance(expected, list) else expected)
    assert answers.get("before") == ([list(LIMITS), [0, 0, 0]] if order == "nvml first" else None)
    assert [devices[uuid] for uuid in uuids] == used
    assert sum(devices.values()) <= sum(LIMITS) * GIB


@pytest.mark.parametrize(
    "refused", ["cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)", "cuMemCreate(handle, size, properties, 0)"]
)
def test_an_instance_of_a_card_is_refused_with_a_reason(folder: Path, uuids: list[str], refused: str) -> None:
    """MIG: the memory of an instance is no part of what the scheduler shares, so it must not count as the card's."""
    instance = f"MIG-{int(uuids[0][4:6], 16) ^ 0x80:02x}{uuids[0][6:]}"
    program = f"""
import ctypes
lib, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
handle, size = ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(2 << 20)
properties = ctypes.byref((ctypes.c_int * 8)(1, 0, 1, 0))
assert lib.cuInit(0) == 0
print(lib.{refused}, lib.{refused})
"""
    environment = {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": str(folder / "libconvgpu.so"),
        "LD_LIBRARY_PATH": str(folder / "driver"),
        "CUDA_VISIBLE_DEVICES": instance,
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "2 2\n"
    assert done.stderr == (
        "convgpu: device 0 is an instance of a GPU in MIG mode, and convgpu shares whole GPUs: memory on it is "
        "rejected. Use another GPU, or let the administrator run nvidia-smi -mig 0.\n"
    )
