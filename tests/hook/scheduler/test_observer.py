"""A process without a session that asks for figures: whatever answers it, it goes on."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compiled import Sanitizer
from scripted_scheduler import ScriptedScheduler
from scripted_session import BINARY_UUIDS

from convgpu.protocol.messages import Failed, Observe, Observed, ProcessRow, pack

Look = Callable[[], "subprocess.Popen[str]"]
NO_FIGURES = ["0 -999", "0 -999", "1 -999", "1 -999"]
"""Of both devices, memory and processes: NVML_ERROR_UNKNOWN."""


@pytest.fixture
def look(
    programs: Path, hook: Path, simulated_driver: Path, devices: Path, tmp_path: Path, sanitizer: Sanitizer
) -> Iterator[Look]:
    started: list[subprocess.Popen[str]] = []

    def begin() -> "subprocess.Popen[str]":
        settings = sanitizer.options | {
            "LD_PRELOAD": ":".join([*sanitizer.runtimes, str(hook / "libconvgpu.so")]),
            "LD_LIBRARY_PATH": str(simulated_driver),
            "SIMULATED_GPU_DIRECTORY": str(devices),
            "CONVGPU_SOCKET": str(tmp_path / "scheduler.sock"),
        }
        pipe = subprocess.PIPE
        started.append(subprocess.Popen([programs / "linked-smi"], env=settings, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


REPLIES = [
    (b"", "it hung up"),
    (b"\x10\0", "it hung up"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers is no ConvGPU scheduler of this version"),
    (b"\x0f\0\0\0\x02\0\x16\0" + bytes(8), "what answers is no ConvGPU scheduler of this version"),
    (b"\x10\0\0\0\x02\0\x16\0" + bytes(8), "what answers is no ConvGPU scheduler of this version"),
    (pack(Observed(1, 1, (ProcessRow(1, 1, 1),)))[:40], "it hung up"),
    (b"\x28\0\0\0\x02\0\x16\0" + bytes(24) + b"\x01\0\0\0" + bytes(4), "what answers is no ConvGPU scheduler"),
    (b"\x28\0\0\0\x02\0\x16\0" + bytes(24) + b"\xff\xff\xff\xff" + bytes(4), "what answers is no ConvGPU"),
    (pack(Failed(3, "no limit:\nset one")), "no limit: set one"),
    (b"\xff" * 64, "what answers is no ConvGPU scheduler of this version"),
]


@pytest.mark.parametrize(("reply", "reason"), REPLIES)
def test_nonsense_instead_of_figures(look: Look, scheduler: ScriptedScheduler, reply: bytes, reason: str) -> None:
    process = look()
    for uuid in (0, 0, 0, 1, 1):  # the first, for the count: are these devices chosen?
        peer = scheduler.accept_silent()
        assert peer.receive() == (1, Observe(BINARY_UUIDS[uuid], ""))
        peer.send_raw(reply)
        peer.close()
    output, errors = process.communicate(timeout=120)
    assert output.splitlines() == NO_FIGURES
    [line] = errors.splitlines()
    assert line.partition("sock: ")[2].startswith(reason)


def test_a_silent_scheduler_is_waited_for_a_second(look: Look, scheduler: ScriptedScheduler) -> None:
    begin = time.monotonic()
    output, errors = look().communicate(timeout=120)
    assert output.splitlines() == NO_FIGURES
    assert errors.endswith("no answer in time.\n")
    assert time.monotonic() - begin >= 1
    scheduler.accept_silent().close()
    assert not scheduler.has_caller()  # it was asked once, and then not for a while
