"""Whom the program within PID namespaces asks."""

import ctypes
from collections.abc import Iterable, Sequence

import pynvml
import pytest

from convgpu.daemon.gpu import namespace_driver
from convgpu.daemon.gpu.namespace_driver import NamespaceDriver


class Kernel:
    """Tells of one card; the other one is lost."""

    devices = ("lost", "there")

    def __init__(self, minors: Iterable[int]) -> None:
        assert list(minors) == [0, 1]

    def held(self, uuid: str, pids: Sequence[int]) -> dict[int, int]:
        if uuid == "lost":
            raise OSError(None, "the NVIDIA driver refuses request 0x2080018e: status 0xf")
        return {pid: 5 for pid in pids if pid == 7}

    def search(self, uuid: str, pids: range) -> list[int]:
        return list(self.held(uuid, pids))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> NamespaceDriver:
    answers = {
        "Init": lambda: None,
        "DeviceGetCount": lambda: 2,
        "DeviceGetHandleByIndex": lambda index: index,
        "DeviceGetMinorNumber": lambda handle: handle,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", answer)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: None)
    monkeypatch.setattr(namespace_driver, "KernelDriver", Kernel)
    return NamespaceDriver("libnvidia-ml.so.1", -1)


def test_a_lost_card_keeps_nobody_from_asking_about_the_others(driver: NamespaceDriver) -> None:
    assert driver.held([6, 7]) == {"there": {7: 5}}
    assert driver.search(range(1, 10)) == {7}
    assert driver.search(range(8, 10)) == set()
