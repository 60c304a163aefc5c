"""What is made of NVML's answers that the simulated one does not give."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from convgpu.daemon.gpu.namespace_lists import NamespaceAsker
from convgpu.daemon.gpu.nvml import NvmlDevices, UnnamedError, uvm_node

CARD = object()


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> NvmlDevices:
    """One card of 80 GiB on which a process draws, one computes, and one does both."""
    answers = {
        "Init": lambda: None,
        "DeviceGetCount": lambda: 1,
        "DeviceGetHandleByIndex": lambda _: CARD,
        "DeviceGetUUID": lambda _: "GPU-1",
        "DeviceGetName": lambda _: "H100",
        "DeviceGetMigMode": lambda _: (0, 0),
        "DeviceGetMemoryInfo": lambda _: SimpleNamespace(total=80, free=70, used=10),
        "DeviceGetComputeRunningProcesses": lambda _: rows((1, 4), (2, 3)),
        "DeviceGetGraphicsRunningProcesses": lambda _: rows((2, 3), (3, 2), (4, None)),
        "DeviceGetAddressingMode": lambda _: pynvml.NVML_DEVICE_ADDRESSING_MODE_HMM,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", answer)
    return NvmlDevices(None)


def rows(*held: tuple[int, int | None]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in held]


def test_who_draws_is_listed_too_and_who_does_both_once(devices: NvmlDevices) -> None:
    devices.list()
    assert devices.used_by("GPU-1") == {1: 4, 2: 3, 3: 2}


def test_who_has_memory_without_a_context_is_listed_too(devices: NvmlDevices, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML lists who has a context only: 4 GiB of a program that had none were nobody's on an H200 (decision 201)."""
    raw, sizes = os.getpid(), {2: 5}
    kernel = SimpleNamespace(held=lambda _uuid, pids: {pid: sizes.get(pid, 6) for pid in {2, raw} & set(pids)})
    monkeypatch.setattr("convgpu.daemon.gpu.nvml.KernelDriver", lambda _minors: kernel)
    devices.list()
    assert devices.used_by("GPU-1") == {1: 4, 2: 5, 3: 2, raw: 6}
    monkeypatch.setattr("convgpu.daemon.gpu.nvml.processes", list)  # it has ended
    assert devices.used_by("GPU-1") == {1: 4, 2: 5, 3: 2, raw: 6}


def test_who_ended_before_anybody_asked_is_asked_about(devices: NvmlDevices, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without a context that left memory to a child and ended was listed by nobody on an H200."""
    ended, now = 1 << 22, [0.0]
    asked = set[int]()

    def held(_uuid: str, pids: Iterable[int]) -> dict[int, int]:
        asked.update(pids)
        return dict.fromkeys({ended} & set(pids), 6)

    monkeypatch.setattr("convgpu.daemon.gpu.nvml.KernelDriver", lambda _minors: SimpleNamespace(held=held))
    monkeypatch.setattr("convgpu.daemon.gpu.nvml.time", SimpleNamespace(monotonic=lambda: now[0]))
    devices.list()
    devices.used_by("GPU-1")
    assert ended not in asked
    devices.note_ended("GPU-1", ended)
    devices.note_ended("GPU-1", ended + 1)
    now[0] = 9.0
    assert devices.used_by("GPU-1")[ended] == 6
    assert ended + 1 in asked
    asked.clear()
    now[0] = 11.0
    assert devices.used_by("GPU-1")[ended] == 6  # as long as that is so
    assert ended + 1 not in asked


def test_a_card_that_hangs_keeps_nobody_waiting_who_asks_about_another(
    devices: NvmlDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a client of its own: the driver's requests wait for their card."""
    asked, answers = threading.Event(), threading.Event()

    def held(uuid: str, _pids: object) -> dict[int, int]:
        if uuid == "GPU-1":
            asked.set()
            answers.wait()
        return {}

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle + 1}")
    monkeypatch.setattr("convgpu.daemon.gpu.nvml.KernelDriver", lambda _minors: SimpleNamespace(held=held))
    devices.list()
    hanging = threading.Thread(target=devices.used_by, args=("GPU-1",))
    hanging.start()
    asked.wait()
    assert devices.used_by("GPU-2") == {1: 4, 2: 3, 3: 2}
    answers.set()
    hanging.join()


def test_what_the_kernels_driver_does_not_tell_is_as_nvml_lists_it(
    devices: NvmlDevices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once."""
    caplog.set_level("INFO")

    def refuse(uuid: str, _others: object) -> dict[int, int]:
        raise KeyError(uuid)

    monkeypatch.setattr("convgpu.daemon.gpu.nvml.KernelDriver", lambda _minors: SimpleNamespace(held=refuse))
    devices.list()
    caplog.clear()
    assert [devices.used_by("GPU-1") for _ in range(2)] == [{1: 4, 2: 3, 3: 2}] * 2
    assert [record.getMessage()[:39] for record in caplog.records] == ["GPU-1: only NVML tells who holds memory"]


def test_that_kernels_reach_memory_of_malloc_is_said(devices: NvmlDevices, caplog: pytest.LogCaptureFixture) -> None:
    assert [one.uuid for one in devices.list()] == ["GPU-1"]
    text = (
        "device GPU-1: kernels reach memory of malloc (HMM); what of it lies on the card is nobody's: "
        "options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d ends that "
        "(docs/authorization.md, What no audit ends)"
    )
    assert [record.getMessage() for record in caplog.records] == [text]


def test_the_node_of_managed_memory_is_known_by_what_the_kernel_lists(tmp_path: Path) -> None:
    listed = tmp_path / "devices"
    rows = "Character devices:\n195 nvidia\n195 nvidiactl\n{}\nBlock devices:\n  8 sd\n"
    found = []
    for row in ("238 nvidia-uvm", " 98 nvidia-uvm", "241 nvidia-uvm-tools"):
        listed.write_text(rows.format(row))
        found.append(uvm_node(listed))
    assert found == [(238, 0, None), (98, 0, None), None]


def test_where_the_driver_does_not_tell_who_imported_memory_that_is_said_once(
    devices: NvmlDevices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_minors: object) -> None:
        raise OSError(None, "the NVIDIA driver refuses request 0x201: status 0x3d")

    monkeypatch.setattr("convgpu.daemon.gpu.nvml.KernelDriver", refuse)
    devices.list()
    caplog.clear()
    caplog.set_level("INFO")
    for _ in range(2):
        with pytest.raises(UnnamedError, match=r"imported memory of GPU-1: .*status 0x3d"):
            devices.imported_by("GPU-1", [1])
    assert [record.getMessage()[:39] for record in caplog.records] == ["GPU-1: only NVML tells who holds memory"]


@pytest.mark.parametrize(("version", "is_told"), [("565.57.01", True), ("580.159.04", True), ("560.35.03", False)])
def test_drivers_that_compare_ids_in_another_namespace_are_not_asked(
    devices: NvmlDevices, monkeypatch: pytest.MonkeyPatch, version: str, is_told: bool
) -> None:
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: version)
    monkeypatch.setattr(NamespaceAsker, "ask", lambda _, questions, patience: [*questions, patience])
    if is_told:
        assert (devices.used_inside([]), devices.search_inside([])) == ([3.0], [8.0])
    else:
        with pytest.raises(UnnamedError, match=r"driver 560.35.03 lists no processes by PID namespace: 565 does"):
            devices.used_inside([])
