"""The doctor's proof that memory leaves a GPU and comes back as it was."""

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.doctor.containers import ProbeFailed
from convgpu.cli.terminal.findings import Finding
from convgpu.protocol.records import Container, Device
from convgpu.protocol.sizes import MIB, format_size

SIZE: Final = 160 * MIB  # two pieces and a half
_LIMIT: Final = 1024 * MIB  # beside a context
_TIMEOUT: Final = 60.0  # seconds for each step
_STILL: Final = 0.5  # seconds in which a container that stands still is seen to
_STEP: Final = 0.05


class ProbeContainers(Protocol):
    """As much of `containers.Containers` as is used here."""

    def start(self, name: str, memory: str, *words: str, suspend: str | None = None) -> str:
        """Start a probe."""

    def reports(self, container: str) -> list[dict[str, Any]]:
        """Return what it has said."""

    def volume(self, container: str) -> str:
        """Return its volume."""

    def remove(self, container: str) -> None:
        """End it."""


def prove_suspension(containers: ProbeContainers, scheduler: Scheduler, device: Device) -> Finding:
    """Suspend a container that compares its memory all the time, see the memory leave, and resume it."""
    free = device.capacity - device.granted
    if free < _LIMIT:
        needed = format_size(_LIMIT)
        seen = f"not proven: {format_size(free)} of GPU {device.index} can be had now, {needed} are needed"
        return Finding("suspend", "skip", seen, "Try again when others have ended. See: convgpu ps")
    memory = f"{device.uuid}:{_LIMIT // MIB}m"
    container = containers.start("suspend", memory, "compare", str(SIZE), suspend="auto")
    volume = containers.volume(container)

    def out() -> int:
        record: Container = scheduler.container(volume)
        return sum(share.out for share in record.devices)

    def compared() -> int:
        return _compared(containers.reports(container))

    _wait(lambda: compared() > 0, "a program has its memory")
    begin = time.monotonic()
    scheduler.suspend(volume)
    try:
        _wait(lambda: out() >= SIZE, "the memory of a suspended container leaves")
    except ProbeFailed as error:
        containers.remove(container)
        return Finding("suspend", "fail", str(error), "Is there host memory for it? See: convgpu devices --json (pool)")
    away = time.monotonic() - begin
    before = compared()
    time.sleep(_STILL)
    if compared() != before:
        return Finding("suspend", "fail", "a suspended program went on", "Please report it.")
    begin = time.monotonic()
    scheduler.resume(volume)
    _wait(lambda: compared() > before, "a program goes on when it is resumed")
    back = time.monotonic() - begin
    containers.remove(container)
    seen = f"{format_size(SIZE)} went to the host in {away:.1f}s and came back in {back:.1f}s, every byte as it was"
    return Finding("suspend", "ok", seen)


def _compared(reports: list[dict[str, Any]]) -> int:
    """Return how often the program has found its memory right.

    Raises:
        ProbeFailed: it found it wrong, or a call failed.
    """
    for report in reports:
        if report["event"] == "failed":
            raise ProbeFailed(f"{report['call']} gave {report['error']} in a container of this")
        if report["event"] == "compared" and not report["right"]:
            raise ProbeFailed("memory that came back is not what it was; please report it")
    return sum(report["event"] == "compared" for report in reports)


def _wait(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise ProbeFailed(f"not within {_TIMEOUT:.0f}s: {what}")
        time.sleep(_STEP)
