"""Plays the scenario on a stage, and says what happens while it does."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.cli.demo.backend import Ended, Stage
from convgpu.cli.demo.report import Played, progress_line
from convgpu.cli.demo.scenario import Part, settled
from convgpu.protocol.records import Container, Devices, Event
from convgpu.protocol.sizes import format_size

_TICK: Final = 0.1  # seconds between two looks
_WAVE_TIME: Final = 6.0  # after this long the second wave starts all the same
_LOOK_TIME: Final = 1.5  # how long the others are seen waiting before those that stay are released
_STAY_TIME: Final = 10.0  # after this long they are released all the same
_TIME: Final = 19.0  # the end, whatever has happened


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, in seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class _Performance:
    """One run of the scenario."""

    def __init__(self, stage: Stage, parts: Sequence[Part], report: Callable[[str], None], clock: Clock) -> None:
        self._stage = stage
        self._parts = parts
        self._report = report
        self._clock = clock
        self._begin = clock.now()
        self._since = stage.scheduler.events().next
        self._unnamed: list[Event] = []
        self._first: float | None = None  # by the scheduler's clock
        self._started: float | None = None  # by ours
        self.events: list[Event] = []

    def age(self) -> float:
        """Return the seconds since the performance began."""
        return self._clock.now() - self._begin

    def length(self) -> float:
        """Return the seconds from the first container's start to now."""
        return 0.0 if self._started is None else self._clock.now() - self._started

    def tick(self) -> None:
        """Wait a moment."""
        self._clock.sleep(_TICK)

    def look(self) -> None:
        """Fetch what is new. An event of a volume whose container is not known yet is kept for later."""
        answer = self._stage.scheduler.events(self._since)
        self._since = answer.next
        volumes = self._stage.volumes()
        unnamed = []
        for event in (*self._unnamed, *answer.events):
            part = volumes.get(event.container or "")
            if part is None:
                unnamed.append(event)
                continue
            if self._first is None and event.kind in {"mounted", "started"}:
                self._first = event.time
            self.events.append(event)
            origin = event.time if self._first is None else self._first
            line = progress_line(event, part.name, event.time - origin)
            if line:
                self._report(line)
        self._unnamed = unnamed

    def wave(self, number: int) -> list[Part]:
        """Start a wave."""
        started = [part for part in self._parts if part.wave == number]
        self._started = self._clock.now() if self._started is None else self._started
        for part in started:
            more = " and until others wait" if part.stays else ""
            sizes = f"limit {format_size(part.limit)}, takes {format_size(part.size)}"
            self._report(f"start {part.name}: {sizes}, keeps it {part.hold:g}s{more}")
            self._stage.start(part)
        return started

    def release(self) -> None:
        """Let those that stay come to their end."""
        for part in self._parts:
            if part.stays:
                self._stage.release(part)

    def settled(self, started: Sequence[Part]) -> bool:
        """Return whether each of these has its memory, or waits, or is over."""
        volumes = self._stage.volumes()
        known: dict[str, Container] = {
            volumes[container.name].name: container
            for container in self._stage.scheduler.containers()
            if container.name in volumes
        }
        ended = self._stage.ended()
        return all(part.name in ended or settled(part, known) for part in started)

    def over(self) -> bool:
        """Return whether every container ended, and the scheduler has said so."""
        told = {event.container for event in self.events if event.kind == "ended"}
        return len(self._stage.ended()) == len(self._parts) and set(self._stage.volumes()) <= told


def play(
    stage: Stage,
    devices: Devices,
    parts: Sequence[Part],
    report: Callable[[str], None],
    clock: Clock | None = None,
) -> Played:
    """Play the parts and return what happened; takes at most about twenty seconds."""
    performance = _Performance(stage, parts, report, clock or Clock())
    others = devices.devices[0].granted
    if others:
        report(f"Note: other containers have {format_size(others)} of this GPU; the scenario may not end in time")
    first = performance.wave(0)
    while performance.age() < _WAVE_TIME and not performance.settled(first):
        performance.look()
        performance.tick()
    second = performance.wave(1)
    release: float | None = None
    while performance.age() < _TIME and not performance.over():
        performance.look()
        if release is None and (performance.settled(second) or performance.age() > _STAY_TIME):
            release = performance.age() + _LOOK_TIME
        if release is not None and performance.age() >= release:
            performance.release()
        performance.tick()
    ended: dict[str, Ended] = dict(stage.ended())
    cast = {volume: (part.name, part.limit) for volume, part in stage.volumes().items()}
    return Played(stage.words, devices, parts, cast, tuple(performance.events), ended, performance.length())
