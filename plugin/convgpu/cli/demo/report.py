"""The result of the demonstration as people and programs read it: progress lines, table, timeline, data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from msgspec import to_builtins
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from convgpu.cli.demo.backend import Exited
from convgpu.cli.demo.scenario import DemoContainer
from convgpu.cli.demo.timeline import (
    ASCII,
    COLUMNS,
    Glyphs,
    Timeline,
    axis,
    bar,
    build_timelines,
    problems,
    span,
    table_rows,
)
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.records import Devices, Event
from convgpu.protocol.sizes import format_size

_NAME: Final = 11  # characters in front of a bar
_WIDEST: Final = 72
_BETWEEN: Final = 3  # characters between two columns
_LESS: Final = ("STARTED", "EXIT", "ENDED", "LIMIT")  # what a narrow terminal does without, first to last


@dataclass(frozen=True, slots=True)
class DemoResult:
    """One finished run of the demonstration.

    Attributes:
        description: what ran the containers, for people.
        devices: the GPUs and the policy.
        containers: of the scenario, in its order.
        names: volume -> (name, limit).
        events: the scheduler's, of these containers only.
        exited: the containers that ended, by name.
        length: seconds from the first container's start to the end.
    """

    description: str
    devices: Devices
    containers: Sequence[DemoContainer]
    names: Mapping[str, tuple[str, int]]
    events: Sequence[Event]
    exited: Mapping[str, Exited]
    length: float

    @property
    def timelines(self) -> tuple[Timeline, ...]:
        """One per container, in the order of the scenario."""
        found = {timeline.name: timeline for timeline in build_timelines(self.events, self.names)}
        return tuple(
            found.get(container.name, Timeline(container.name, container.limit)) for container in self.containers
        )

    @property
    def shown(self) -> float:
        """Seconds that a timeline shows."""
        timelines = self.timelines
        unended = any(timeline.started is not None and timeline.ended is None for timeline in timelines)
        return max(span(timelines), self.length if unended else 0.0)

    @property
    def exits(self) -> dict[str, int | None]:
        """Exit codes by name."""
        return {name: exited.exit_code for name, exited in self.exited.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the demonstration failed; empty if it succeeded."""
        return problems(self.timelines, self.exits, may_leave=self.may_leave)

    @property
    def may_leave(self) -> bool:
        """Whether the scenario is of memory that leaves."""
        return any(container.may_leave for container in self.containers)


def caption(result: DemoResult) -> str:
    """Return GPU and policy in one line."""
    device = result.devices.devices[0]
    return f"GPU {device.index}: {device.name}, {format_size(device.capacity)}; policy {result.devices.policy}"


def progress_line(event: Event, name: str, seconds: float) -> str | None:
    """Return one line about an event, or None for those that say nothing to a spectator."""
    size = format_size(event.size or 0)
    call = f" ({event.call})" if event.call else ""
    waited = f" after {event.waited:.1f}s" if event.waited is not None else ""
    texts: dict[str, str] = {
        EventKind.MOUNTED: "has started",
        EventKind.PAUSED: f"is PAUSED: waits for {size}{call}",
        EventKind.GRANTED: f"GOES ON{waited}: has got its {size}",
        EventKind.REJECTED: f"is rejected{waited}: asked for {size}{call}, reason {event.reason}",
        EventKind.ENDED: "has ended and given its memory back",
        EventKind.SUSPENDED: "stands still: its memory may leave",
        EventKind.EVICTED: f"LEAVES: {size} went to the host",
        EventKind.RESTORED: f"COMES BACK: {size} from the host",
        EventKind.RESUMED: f"GOES ON{waited} with all its memory",
    }
    text = texts.get(event.kind)
    return None if text is None else f"{seconds:5.1f}s  {name} {text}"


def show(result: DemoResult, console: Console) -> None:
    """Print the table, the timeline and the verdict."""
    timelines = result.timelines
    console.print()
    console.print(_table(table_rows(timelines, result.exits), console.width))
    console.print()
    for line in timeline_lines(timelines, result.shown, min(console.width, 80), glyphs(console.encoding)):
        console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(Text(caption(result)), soft_wrap=True)
    console.print(Text(f"Played by {result.description}"))
    for problem in result.problems:
        console.print(Text(f"FAILED: {problem}", style="bold red"))
    for name, exited in result.exited.items():
        if exited.exit_code != 0:
            console.print(Text(f"{name} said: {exited.output}"))
    if not result.problems:
        what = "was paused, and went on by itself when another ended"
        what = "left the GPU for another, and came back with what it had" if result.may_leave else what
        console.print(Text(f"A container {what}.", style="green"))


def glyphs(encoding: str) -> Glyphs:
    """Return the characters for a terminal of this encoding."""
    return Glyphs() if encoding.lower().replace("-", "") == "utf8" else ASCII


def timeline_lines(timelines: Sequence[Timeline], length: float, width: int, characters: Glyphs) -> list[str]:
    """Return one bar per container and the axis of `length` s, in at most `width` characters, and the legend."""
    room = min(width - _NAME - 4, _WIDEST)
    ticks, labels = axis(length, room)
    shows_out = any(timeline.stops for timeline in timelines)
    out = f"   {characters.out} stands still, its memory on the host" if shows_out else ""
    return [
        *(f"{timeline.name:<{_NAME}}{bar(timeline, length, room, characters)}".rstrip() for timeline in timelines),
        " " * _NAME + ticks,
        " " * _NAME + labels,
        f"{'':<{_NAME}}{characters.running} runs   {characters.paused} paused, waits for memory{out}",
    ]


def as_data(result: DemoResult) -> dict[str, Any]:
    """Return what `convgpu demo --json` prints; its help text describes it."""
    device = result.devices.devices[0]
    return {
        "played_by": result.description,
        "policy": result.devices.policy,
        "device": {"uuid": device.uuid, "index": device.index, "name": device.name, "capacity": device.capacity},
        "containers": [
            {**asdict(timeline), "exit_code": result.exits.get(timeline.name)} for timeline in result.timelines
        ],
        "pause_seen": not result.problems,
        "problems": list(result.problems),
        "events": [{**to_builtins(event), "name": result.names[event.container or ""][0]} for event in result.events],
    }


def _table(lines: Sequence[tuple[str, ...]], room: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    shown = columns_within(lines, room)
    for place in shown:
        table.add_column(COLUMNS[place], justify="left" if COLUMNS[place] == "CONTAINER" else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(line[place]) for place in shown))
    return table


def columns_within(lines: Sequence[tuple[str, ...]], room: int) -> list[int]:
    """Return which columns a terminal of `room` characters shows: the pauses last to go, and the bars tell the rest."""
    shown = list(range(len(COLUMNS)))
    widths = [max(len(row[place]) for row in (COLUMNS, *lines)) for place in shown]
    for name in _LESS:
        if sum(widths[place] for place in shown) + _BETWEEN * (len(shown) - 1) > room:
            shown.remove(COLUMNS.index(name))
    return shown
