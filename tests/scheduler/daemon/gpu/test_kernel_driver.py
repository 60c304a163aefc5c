"""Questions to NVIDIA's kernel driver, on one that answers as a card's did (docs/decisions/0195)."""

import ctypes
import fcntl
import os
from typing import Any

import pytest

from convgpu.daemon.gpu import kernel_driver
from convgpu.daemon.gpu.kernel_driver import KernelDriver

GIB = 1 << 30
REFUSED = 0x1B  # NV_ERR_INSUFFICIENT_PERMISSIONS
GPUS = {0x100: "GPU-1", 0x200: "GPU-2"}
SIZES = {0x201: 128, 0x205: 32, 0x2080014A: 268, 0x2080018E: 14408}  # of the parameters, on driver 580


class Driver:
    """Keeps client, devices and subdevices by handle, and refuses requests of another size.

    Attributes:
        nodes: that are open.
        imported: bytes by pid.
        held: bytes by pid, that are shared with nobody, and that others imported.
        forbidden: GPUs that it tells nobody of.
    """

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.imported: dict[int, int] = {}
        self.held: dict[int, tuple[int, int]] = {}
        self.forbidden: set[int] = set()
        self.sizes = dict(SIZES)
        self._objects = {0: 0}

    def open(self, path: str, flags: int) -> int:
        if path.startswith("/dev/nvidia"):
            self.nodes.append(path)
            path = "/dev/null"
        return os_open(path, flags)

    def ioctl(self, _descriptor: int, code: int, request: Any) -> int:
        answer = {0xC020462A: self._control, 0xC020462B: self._allocate}[code]
        request.status = answer(request)
        return 0

    def _allocate(self, request: Any) -> int:
        if request.kind == 0x80:
            gpu = list(GPUS)[ctypes.c_uint32.from_address(request.parameters).value]
            if f"/dev/nvidia{list(GPUS).index(gpu)}" not in self.nodes or gpu in self.forbidden:
                return REFUSED
            self._objects[request.handle] = gpu
        elif request.kind == 0x2080:
            self._objects[request.handle] = self._objects[request.parent]
        else:
            request.handle = 0xC1D00001
        return 0

    def _control(self, request: Any) -> int:
        if request.size != self.sizes[request.command]:
            return 0x3D  # NV_ERR_INVALID_PARAM_STRUCT
        words = (ctypes.c_uint32 * (request.size // 4)).from_address(request.parameters)
        if request.command == 0x201:
            words[:] = [*GPUS, *[0xFFFFFFFF] * 30]
        elif request.command == 0x205:
            words[2] = list(GPUS).index(words[0])
        elif request.command == 0x2080014A:
            ctypes.memmove(request.parameters + 12, GPUS[self._objects[request.handle]].encode(), 6)
        else:
            assert 1 <= words[0] <= 200
            for row in range(words[0]):
                at = request.parameters + 8 + 72 * row
                pid = ctypes.c_uint32.from_address(at).value
                sizes = (*self.held.get(pid, (0, 0)), self.imported.get(pid, 0))
                (ctypes.c_uint64 * 3).from_address(at + 16)[:] = sizes
        return 0


os_open = os.open


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(kernel_driver.os, "open", made.open)
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    return made


def test_it_tells_what_processes_imported(driver: Driver) -> None:
    driver.imported = {7: 3 * GIB, 250: 1}
    asked = KernelDriver([0, 1])
    assert asked.imported("GPU-2", range(1, 300)) == {7: 3 * GIB, 250: 1}
    assert asked.imported("GPU-1", []) == {}
    assert driver.nodes == ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"]
    asked.close()


def test_it_tells_what_processes_hold(driver: Driver) -> None:
    driver.held, driver.imported = {7: (3 * GIB, 2), 8: (0, 5)}, {7: GIB, 9: GIB}
    asked = KernelDriver([0, 1])
    assert list(asked.devices) == ["GPU-1", "GPU-2"]
    assert asked.held("GPU-2", range(1, 300)) == {7: 3 * GIB + 2, 8: 5}


def test_it_finds_who_holds_something_among_all_pids(driver: Driver) -> None:
    driver.held = {7: (GIB, 0), 200: (0, 5), 201: (0, 0), 4_000_000: (1 << 40, 0), 4_194_303: (9, 0)}
    asked = KernelDriver([0, 1])
    assert asked.search("GPU-2", range(1, 1000)) == {7: GIB, 200: 5}
    assert asked.search("GPU-1", range(3_999_900, 4_194_303)) == {4_000_000: 1 << 40}


def test_a_gpu_that_it_tells_nobody_of_is_left_out(driver: Driver) -> None:
    driver.forbidden = {0x100}
    driver.imported = {7: GIB}
    asked = KernelDriver([0, 1])
    assert asked.imported("GPU-2", [7]) == {7: GIB}
    with pytest.raises(KeyError):
        asked.imported("GPU-1", [7])


def test_questions_of_another_layout_are_refused(driver: Driver) -> None:
    asked = KernelDriver([0])
    driver.sizes[0x2080018E] += 8
    with pytest.raises(OSError, match="refuses request 0x2080018e: status 0x3d"):
        asked.imported("GPU-1", [7])
    driver.sizes[0x201] += 4
    with pytest.raises(OSError, match="refuses request 0x201"):
        KernelDriver([0])
