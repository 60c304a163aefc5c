"""Runs the scenario on a backend, and reports progress."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.cli.demo.backend import DemoBackend, Exited
from convgpu.cli.demo.report import DemoResult, progress_line
from convgpu.cli.demo.scenario import DemoContainer, at_rest
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.records import Container, Devices, Event
from convgpu.protocol.sizes import format_size

_TICK: Final = 0.1  # seconds between two polls
_WAVE_TIME: Final = 15.0  # seconds after which the second wave starts in any case
_SHOW_TIME: Final = 1.5  # seconds that the others are seen waiting before those that stay are released
_STAY_TIME: Final = 30.0  # seconds after which they are released in any case
_MAX_TIME: Final = 60.0  # seconds after which the run ends in any case; on an idle machine it takes some twelve


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, in seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class _DemoRun:
    """One run of the scenario."""

    def __init__(
        self, backend: DemoBackend, containers: Sequence[DemoContainer], report: Callable[[str], None], clock: Clock
    ) -> None:
        self._backend = backend
        self._containers = containers
        self._report = report
        self._clock = clock
        self._begin = clock.now()
        self._since = backend.scheduler.events().next
        self._unnamed: list[Event] = []
        self._first: float | None = None  # by the scheduler's clock
        self._started: float | None = None  # by ours
        self.events: list[Event] = []

    def age(self) -> float:
        """Return the seconds since the run began."""
        return self._clock.now() - self._begin

    def length(self) -> float:
        """Return the seconds from the first container's start to now."""
        return 0.0 if self._started is None else self._clock.now() - self._started

    def tick(self) -> None:
        """Wait a moment."""
        self._clock.sleep(_TICK)

    def poll(self) -> None:
        """Fetch new events. An event of a volume whose container is not known yet is processed later."""
        answer = self._backend.scheduler.events(self._since)
        self._since = answer.next
        volumes = self._backend.volumes()
        unnamed = []
        for event in (*self._unnamed, *answer.events):
            container = volumes.get(event.container or "")
            if container is None:
                unnamed.append(event)
                continue
            if self._first is None and event.kind in {EventKind.MOUNTED, EventKind.STARTED}:
                self._first = event.time
            self.events.append(event)
            origin = event.time if self._first is None else self._first
            line = progress_line(event, container.name, event.time - origin)
            if line:
                self._report(line)
        self._unnamed = unnamed

    def wave(self, number: int) -> list[DemoContainer]:
        """Start a wave."""
        started = [container for container in self._containers if container.wave == number]
        self._started = self._clock.now() if self._started is None else self._started
        for container in started:
            until = "have theirs" if container.may_leave else "wait"
            more = f" and until others {until}" if container.stays else ""
            sizes = f"limit {format_size(container.limit)}, takes {format_size(container.size)}"
            self._report(f"start {container.name}: {sizes}, keeps it {container.hold:g}s{more}")
            self._backend.start(container)
        return started

    def release(self) -> None:
        """Let those that stay come to their end."""
        for container in self._containers:
            if container.stays:
                self._backend.release(container)

    def at_rest(self, started: Sequence[DemoContainer]) -> bool:
        """Return whether each of these has its memory, or waits, or has exited."""
        volumes = self._backend.volumes()
        known: dict[str, Container] = {
            volumes[row.name].name: row for row in self._backend.scheduler.containers() if row.name in volumes
        }
        exited = self._backend.exited()
        return all(container.name in exited or at_rest(container, known) for container in started)

    def over(self) -> bool:
        """Return whether every container ended, and the scheduler has said so."""
        reported = {event.container for event in self.events if event.kind == EventKind.ENDED}
        return len(self._backend.exited()) == len(self._containers) and set(self._backend.volumes()) <= reported


def run_demo(
    backend: DemoBackend,
    devices: Devices,
    containers: Sequence[DemoContainer],
    report: Callable[[str], None],
    clock: Clock | None = None,
) -> DemoResult:
    """Run the containers and return the result; takes at most a minute."""
    run = _DemoRun(backend, containers, report, clock or Clock())
    others = devices.devices[0].granted
    if others:
        report(f"Note: other containers have {format_size(others)} of this GPU; the scenario may not end in time")
    first = run.wave(0)
    while run.age() < _WAVE_TIME and not run.at_rest(first):
        run.poll()
        run.tick()
    second = run.wave(1)
    release: float | None = None
    while run.age() < _MAX_TIME and not run.over():
        run.poll()
        if release is None and (run.at_rest(second) or run.age() > _STAY_TIME):
            release = run.age() + _SHOW_TIME
        if release is not None and run.age() >= release:
            run.release()
        run.tick()
    exited: dict[str, Exited] = dict(backend.exited())
    names = {volume: (container.name, container.limit) for volume, container in backend.volumes().items()}
    return DemoResult(backend.description, devices, containers, names, tuple(run.events), exited, run.length())
