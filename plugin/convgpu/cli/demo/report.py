"""How the demonstration is told: progress lines, table, timeline, data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from msgspec import to_builtins
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from convgpu.cli.demo.backend import Ended
from convgpu.cli.demo.scenario import Part
from convgpu.cli.demo.timeline import ASCII, COLUMNS, Glyphs, Story, axis, bar, problems, span, table_rows, tell
from convgpu.protocol.records import Devices, Event
from convgpu.protocol.sizes import format_size

_NAME: Final = 11  # characters in front of a bar
_WIDEST: Final = 72


@dataclass(frozen=True, slots=True)
class Played:
    """What happened. `cast`: volume -> (name, limit); `ended` by name; `length`: seconds that it took."""

    words: str
    devices: Devices
    parts: Sequence[Part]
    cast: Mapping[str, tuple[str, int]]
    events: Sequence[Event]
    ended: Mapping[str, Ended]
    length: float

    @property
    def stories(self) -> tuple[Story, ...]:
        """One per container, in the order of the scenario."""
        told = {story.name: story for story in tell(self.events, self.cast)}
        return tuple(told.get(part.name, Story(part.name, part.limit)) for part in self.parts)

    @property
    def shown(self) -> float:
        """Seconds that a timeline shows."""
        stories = self.stories
        unended = any(story.started is not None and story.ended is None for story in stories)
        return max(span(stories), self.length if unended else 0.0)

    @property
    def exits(self) -> dict[str, int | None]:
        """Exit codes by name."""
        return {name: ended.exit_code for name, ended in self.ended.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it was no demonstration; empty if it was one."""
        return problems(self.stories, self.exits)


def caption(played: Played) -> str:
    """Return where it was seen, in one line."""
    device = played.devices.devices[0]
    return f"GPU {device.index}: {device.name}, {format_size(device.capacity)}; policy {played.devices.policy}"


def progress_line(event: Event, name: str, seconds: float) -> str | None:
    """Return one line about an event, or None for those that say nothing to a spectator."""
    size = format_size(event.size or 0)
    call = f" ({event.call})" if event.call else ""
    waited = f" after {event.waited:.1f}s" if event.waited is not None else ""
    texts = {
        "mounted": "has started",
        "paused": f"is PAUSED: waits for {size}{call}",
        "granted": f"GOES ON{waited}: has got its {size}",
        "rejected": f"is rejected{waited}: asked for {size}{call}, reason {event.reason}",
        "ended": "has ended and given its memory back",
    }
    text = texts.get(event.kind)
    return None if text is None else f"{seconds:5.1f}s  {name} {text}"


def show(played: Played, console: Console) -> None:
    """Print the table, the timeline and the verdict."""
    stories = played.stories
    console.print()
    console.print(_table(table_rows(stories, played.exits)))
    console.print()
    for line in timeline_lines(stories, played.shown, min(console.width, 80), glyphs(console.encoding)):
        console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(Text(caption(played)), soft_wrap=True)
    console.print(Text(f"Played by {played.words}"))
    for problem in played.problems:
        console.print(Text(f"FAILED: {problem}", style="bold red"))
    for name, ended in played.ended.items():
        if ended.exit_code != 0:
            console.print(Text(f"{name} said: {ended.output}"))
    if not played.problems:
        console.print(Text("A container was paused, and went on by itself when another ended.", style="green"))


def glyphs(encoding: str) -> Glyphs:
    """Return the characters for a terminal of this encoding."""
    return Glyphs() if encoding.lower().replace("-", "") == "utf8" else ASCII


def timeline_lines(stories: Sequence[Story], length: float, width: int, characters: Glyphs) -> list[str]:
    """Return one bar per container and the axis of `length` s, in at most `width` characters, and the legend."""
    room = min(width - _NAME - 4, _WIDEST)
    ticks, labels = axis(length, room)
    return [
        *(f"{story.name:<{_NAME}}{bar(story, length, room, characters)}".rstrip() for story in stories),
        " " * _NAME + ticks,
        " " * _NAME + labels,
        f"{'':<{_NAME}}{characters.running} runs   {characters.paused} paused, waits for memory",
    ]


def as_data(played: Played) -> dict[str, Any]:
    """Return what `convgpu demo --json` prints; its help text describes it."""
    device = played.devices.devices[0]
    return {
        "played_by": played.words,
        "policy": played.devices.policy,
        "device": {"uuid": device.uuid, "index": device.index, "name": device.name, "capacity": device.capacity},
        "containers": [{**asdict(story), "exit_code": played.exits.get(story.name)} for story in played.stories],
        "pause_seen": not played.problems,
        "problems": list(played.problems),
        "events": [{**to_builtins(event), "name": played.cast[event.container or ""][0]} for event in played.events],
    }


def _table(lines: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "CONTAINER" else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    return table
