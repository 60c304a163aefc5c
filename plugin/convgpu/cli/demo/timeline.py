"""One timeline per container, built from the scheduler's events. Pure.

Times are seconds since the first of the containers started.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from convgpu.protocol.event_kinds import EventKind, RejectReason
from convgpu.protocol.records import Event
from convgpu.protocol.sizes import format_size

COLUMNS: Final = ("CONTAINER", "LIMIT", "STARTED", "PAUSED", "WENT ON", "ENDED", "EXIT")
_STEPS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Pause:
    """One allocation of `size` bytes that had to wait.

    `end` is None while it waits; `granted` says whether it was accepted then, or else rejected or cut off.
    """

    size: int
    begin: float
    end: float | None = None
    granted: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in which a container stood still, and `size` bytes of it left the GPU; `end`: when it ran again."""

    size: int
    begin: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One container from its start to its end; None for a time that has not come."""

    name: str
    limit: int
    started: float | None = None
    pauses: tuple[Pause, ...] = ()
    ended: float | None = None
    stops: tuple[Stop, ...] = ()


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a bar."""

    running: str = "█"
    paused: str = "░"
    out: str = "▒"


ASCII: Final = Glyphs("#", ".", "o")


@dataclass(slots=True)
class _Builder:
    """A timeline under construction, in the scheduler's own time."""

    started: float | None = None
    ended: float | None = None
    pauses: list[Pause] = field(default_factory=list)
    keys: list[tuple[object, ...]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)

    def begin(self, event: Event) -> None:
        self.pauses.append(Pause(event.size or 0, event.time))
        self.keys.append(_allocation(event))

    def end(self, event: Event, *, granted: bool) -> None:
        """End the pause of the same allocation, or else the oldest that is open."""
        waiting = [i for i, pause in enumerate(self.pauses) if pause.end is None]
        same = [i for i in waiting if self.keys[i] == _allocation(event)]
        for i in (same or waiting)[:1]:
            self.pauses[i] = replace(self.pauses[i], end=event.time, granted=granted)

    def stop(self, time: float) -> None:
        self.stops.append(Stop(0, time))

    def leave(self, size: int) -> None:
        if self.stops:
            self.stops[-1] = replace(self.stops[-1], size=self.stops[-1].size + size)

    def resume(self, time: float) -> None:
        if self.stops:
            self.stops[-1] = replace(self.stops[-1], end=time)

    def close(self, time: float) -> None:
        self.ended = time
        self.pauses = [replace(pause, end=time) if pause.end is None else pause for pause in self.pauses]


def _allocation(event: Event) -> tuple[object, ...]:
    """Return the fields that all events of one allocation share."""
    return (event.cause, event.pid, event.uuid, event.size)


def build_timelines(events: Iterable[Event], names: Mapping[str, tuple[str, int]]) -> tuple[Timeline, ...]:
    """Return the timeline of each container in `names`, in that order.

    Args:
        events: of the scheduler, in any order, other containers' too.
        names: volume name -> (name for people, limit).
    """
    builders = {volume: _Builder() for volume in names}
    for event in sorted(events, key=lambda event: event.sequence):
        builder = builders.get(event.container or "")
        if builder is not None:
            _follow(builder, event)
    started = [builder.started for builder in builders.values() if builder.started is not None]
    origin = min(started, default=0.0)
    return tuple(_finish(*names[volume], builder, origin) for volume, builder in builders.items())


def _follow(builder: _Builder, event: Event) -> None:
    match event.kind:
        case EventKind.MOUNTED | EventKind.STARTED:
            builder.started = event.time if builder.started is None else builder.started
        case EventKind.PAUSED:
            builder.begin(event)
        case EventKind.GRANTED:
            builder.end(event, granted=True)
        case EventKind.REJECTED if event.waited is not None or event.reason == RejectReason.DEADLINE:
            builder.end(event, granted=False)
        case EventKind.ENDED:
            builder.close(event.time)
        case EventKind.SUSPENDED | EventKind.EVICTED | EventKind.RESUMED:
            _follow_stop(builder, event)
        case _:
            pass


def _follow_stop(builder: _Builder, event: Event) -> None:
    match event.kind:
        case EventKind.SUSPENDED:
            builder.stop(event.time)
        case EventKind.EVICTED:
            builder.leave(event.size or 0)
        case _:
            builder.resume(event.time)


def _finish(name: str, limit: int, builder: _Builder, origin: float) -> Timeline:
    def since(time: float | None) -> float | None:
        return None if time is None else round(time - origin, 6)

    pauses = tuple(
        replace(pause, begin=round(pause.begin - origin, 6), end=since(pause.end)) for pause in builder.pauses
    )
    stops = tuple(replace(stop, begin=round(stop.begin - origin, 6), end=since(stop.end)) for stop in builder.stops)
    return Timeline(name, limit, since(builder.started), pauses, since(builder.ended), stops)


def problems(
    timelines: Sequence[Timeline], exits: Mapping[str, int | None], *, may_leave: bool = False
) -> tuple[str, ...]:
    """Return why the demonstration failed; empty if a pause and its end were seen and every container exited with 0.

    Args:
        timelines: of all containers.
        exits: exit code by name; None for a container that had to be stopped.
        may_leave: instead of a pause, memory that left the GPU and came back must have been seen.
    """
    found = []
    pauses = [pause for timeline in timelines for pause in timeline.pauses]
    stops = [stop for timeline in timelines for stop in timeline.stops if stop.size]
    if may_leave and not any(stop.end is not None for stop in stops):
        promise = "no memory left the GPU: it needs twice the promise (CONVGPU_OVERSUBSCRIBE=2)"
        found.append("memory left the GPU, and not all of it was back in time" if stops else promise)
    elif not may_leave and not pauses:
        found.append("no allocation was paused")
    elif not may_leave and not any(pause.granted for pause in pauses):
        found.append("an allocation was paused, but none went on")
    for timeline in timelines:
        code = exits.get(timeline.name)
        if code is None:
            found.append(f"{timeline.name} did not end in time")
        elif code != 0:
            found.append(f"{timeline.name} ended with exit code {code}")
        elif timeline.ended is None:
            found.append(f"the scheduler did not report the end of {timeline.name}")
    return tuple(found)


def table_rows(timelines: Sequence[Timeline], exits: Mapping[str, int | None]) -> list[tuple[str, ...]]:
    """Return one row per container, and one more for each further pause, in the order of COLUMNS."""
    result: list[tuple[str, ...]] = []
    for timeline in timelines:
        code = exits.get(timeline.name)
        last = (_seconds(timeline.ended), "-" if code is None else str(code))
        first = (timeline.name, format_size(timeline.limit), _seconds(timeline.started))
        for pause in timeline.pauses or (None,):
            middle = ("", "")
            if pause is not None:
                went_on = _seconds(pause.end) if pause.granted else "-"
                middle = (f"{_seconds(pause.begin)} ({format_size(pause.size)})", went_on)
            result.append((*first, *middle, *last))
            first, last = ("", "", ""), ("", "")
    return result


def _seconds(time: float | None) -> str:
    return "-" if time is None else f"{time:.1f}s"


def span(timelines: Sequence[Timeline]) -> float:
    """Return the time of the last event."""
    times = [0.0]
    for timeline in timelines:
        times += [time for time in (timeline.started, timeline.ended) if time is not None]
        times += [pause.end if pause.end is not None else pause.begin for pause in timeline.pauses]
        times += [stop.end if stop.end is not None else stop.begin for stop in timeline.stops]
    return max(times)


def bar(timeline: Timeline, length: float, width: int, glyphs: Glyphs) -> str:
    """Draw `timeline` over `length` seconds in `width` characters.

    A pause is drawn however short it was: the demonstration is about pauses.
    """
    if timeline.started is None or length <= 0:
        return " " * width
    end = length if timeline.ended is None else timeline.ended
    cells = [" "] * width
    _fill(cells, timeline.started, end, length, glyphs.running)
    for pause in timeline.pauses:
        _fill(cells, pause.begin, end if pause.end is None else pause.end, length, glyphs.paused)
    for stop in timeline.stops:
        _fill(cells, stop.begin, end if stop.end is None else stop.end, length, glyphs.out)
    return "".join(cells)


def _fill(cells: list[str], begin: float, end: float, length: float, glyph: str) -> None:
    width = len(cells)
    first = min(int(begin / length * width), width - 1)
    last = max(first + 1, round(end / length * width))
    cells[first:last] = glyph * (min(last, width) - first)


def seconds_of_axis(length: float, most: int) -> range:
    """Return the seconds that an axis names: about `most` of them at most, in round steps."""
    step = next((step for step in _STEPS if step * max(most, 1) >= length), _STEPS[-1])
    return range(0, int(length) + 1, step)


def axis(length: float, width: int) -> tuple[str, str]:
    """Return the ticks of the time axis and the seconds below them."""
    ticks, labels = [" "] * width, [" "] * (width + 6)
    for second in seconds_of_axis(length, width // 6):
        position = int(second / length * width) if length > 0 else 0
        if position >= width:
            break
        ticks[position] = "|"
        labels[position : position + len(str(second))] = str(second)
    return "".join(ticks).rstrip(), "".join(labels).rstrip() + " s"
