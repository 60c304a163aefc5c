"""A scheduler that has chosen some of four devices, and programs that ask CUDA and NVML what there is."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from choosing_scheduler import ChoosingScheduler
from scripted_scheduler import ScriptedScheduler

GIB = 1 << 30
UUIDS = tuple(f"GPU-0000000{row}-0000-0000-0000-000000000000" for row in range(4))

PROGRAM = """
import ctypes, json, os, subprocess, sys, uuid
import pynvml as n
cuda = ctypes.CDLL("libcuda.so.1")
def error(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as e:
        return -e.value
def nvml():
    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(index) for index in range(n.nvmlDeviceGetCount())]
    assert [n.nvmlDeviceGetIndex(handle) for handle in handles] == list(range(len(handles)))
    return [n.nvmlDeviceGetUUID(handle) for handle in handles]
def by_cuda():
    result, count, name = cuda.cuInit(0), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if result:
        return result
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    seen = []
    for ordinal in range(count.value):
        assert cuda.cuDeviceGetUuid_v2(name, ordinal) == 0
        seen.append(f"GPU-{uuid.UUID(bytes=bytes(name))}")
    return seen
def environment():
    libc = ctypes.CDLL(None)
    entries = (ctypes.c_char_p * 1000).from_address(ctypes.c_void_p.in_dll(libc, "environ").value)
    seen = []
    for entry in entries:
        if entry is None:
            return seen
        seen.append(entry.decode())
def child():
    code = "import ctypes, os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    return subprocess.check_output([sys.executable, "-S", "-c", code], text=True).strip()
"""


class Container:
    """Runs programs under the hook; each prints one JSON value."""

    def __init__(self, settings: dict[str, str], choosing: ChoosingScheduler) -> None:
        self._settings = settings
        self.scheduler = choosing

    def run(self, program: str, visible: str | None = None) -> tuple[object, str]:
        """Return what the program printed, and its stderr."""
        settings = self._settings | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        command = [sys.executable, "-c", PROGRAM + program]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr


@pytest.fixture
def container(hook: Path, simulated_driver: Path, tmp_path: Path) -> Iterator[Container]:
    folder = tmp_path / "devices"
    folder.mkdir()
    (folder / "devices").write_text("".join(f"{uuid} {16 * GIB}\n" for uuid in UUIDS))
    (folder / "state").touch()
    settings = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(simulated_driver),
        "LD_PRELOAD": str(hook / "libconvgpu.so"),
        "SIMULATED_GPU_DIRECTORY": str(folder),
        "CONVGPU_SOCKET": str(tmp_path / "scheduler.sock"),
    }
    with ScriptedScheduler(tmp_path / "scheduler.sock", hook / "libconvgpu-page.so") as scripted:
        yield Container(settings, ChoosingScheduler(scripted, UUIDS))
