"""The screen of `convgpu top`. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Final

from convgpu.cli.connect.named_containers import NamedContainer
from convgpu.cli.show.container_rows import COLUMNS, Row, rows
from convgpu.cli.terminal.output import layout
from convgpu.cli.terminal.telemetry import telemetry_cells
from convgpu.protocol.records import Device, Devices
from convgpu.protocol.sizes import format_size

KEYS: Final = "q quit   s sort   space hold   up/down scroll"
_NAME: Final = 26  # characters in front of a bar
_INDEX: Final = 7  # the same on a narrow terminal
_NARROW: Final = 72  # columns, below which GPUs go without their names and what they do
_FIGURES: Final = 24  # and behind it
_DOES: Final = 20  # more, of a GPU that says what it does


def _use(entry: NamedContainer) -> int:
    return sum(share.usage for share in entry.container.devices)


SORTS: Final[Mapping[str, Callable[[NamedContainer], object]]] = {
    "age": lambda entry: (entry.container.created, entry.container.name),
    "usage": lambda entry: (-_use(entry), entry.container.created),
    "waiting first": lambda entry: (entry.container.state != "waiting", entry.container.created),
    "name": lambda entry: entry.name,
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The scheduler's answers at `now` (Unix seconds)."""

    now: float
    devices: Devices
    listed: Sequence[NamedContainer]


@dataclass(frozen=True, slots=True)
class Controls:
    """The state that keys change. `scroll`: lines that are left out at the top of the list."""

    sort: str = "age"
    scroll: int = 0
    held: bool = False

    def press(self, key: str, page: int) -> "Controls":
        """Return the controls after a key; one without meaning changes nothing. `page`: lines of a page."""
        names = list(SORTS)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page}
        if key == "s":
            return replace(self, sort=names[(names.index(self.sort) + 1) % len(names)], scroll=0)
        if key == " ":
            return replace(self, held=not self.held)
        return replace(self, scroll=max(0, self.scroll + steps.get(key, 0)))


@dataclass(frozen=True, slots=True)
class Line:
    """A line, and its style as `output.echo` takes it."""

    text: str
    style: str = ""


def view(seen: Snapshot, controls: Controls, clock: str, size: tuple[int, int], bar: str = "█▒ ") -> list[Line]:
    """Return the lines of a screen.

    Args:
        seen: what is shown.
        controls: how.
        clock: the time of day, as it is written.
        size: columns and lines of the terminal.
        bar: the characters for used, granted and free memory.
    """
    width, height = size
    waiting = sum(entry.container.state == "waiting" for entry in seen.listed)
    number = f"{len(seen.listed)} container{'s' * (len(seen.listed) != 1)}"
    held = "  HELD" if controls.held else ""
    head = f"{clock}  {number}, {waiting} waiting{held}"
    whole = f"convgpu {clock}  {number}, {waiting} waiting; policy {seen.devices.policy}{held}"
    top = [Line(whole if len(whole) <= width else head, "bold")]
    top += [device_line(device, width, bar) for device in sorted(seen.devices.devices, key=lambda device: device.index)]
    top.append(Line(""))
    ordered = sorted(seen.listed, key=SORTS[controls.sort])  # type: ignore[arg-type]  # each key orders with itself
    title, *body = table(rows(ordered, seen.devices, seen.now), width)
    room = max(1, height - len(top) - 2)
    scroll = min(controls.scroll, max(0, len(body) - room))
    shown = body[scroll : scroll + room]
    below = len(body) - scroll - len(shown)
    foot = f"{KEYS}   by {controls.sort}" + (f"   {below} more" if below else "")
    lines = [*top, title, *shown, *[Line("")] * (room - len(shown)), Line(foot, "dim")]
    return [replace(line, text=line.text[:width]) for line in lines]


def table(found: Sequence[Row], width: int) -> list[Line]:
    """Return head and lines of the list, with the notes between them."""
    head, *cells = layout(COLUMNS, [row.cells for row in found if row.cells], width)
    left = iter(cells)
    lines = [Line(head, "bold")]
    for row in found:
        texts = [next(left)] if row.cells else wrap(row.note, width, subsequent_indent="    ")
        lines += [Line(text, row.style) for text in texts]
    return lines


def device_line(device: Device, width: int, bar: str) -> Line:
    """Return a device with a bar of its used, granted and free capacity."""
    is_narrow = width < _NARROW
    titles = _INDEX if is_narrow else _NAME
    says = () if is_narrow else tuple(cell for cell in telemetry_cells(device.telemetry) if cell)
    room = max(8, width - titles - _FIGURES - 4 - (_DOES if says else 0))
    capacity = max(device.capacity, 1)
    used = min(room, round((device.used - device.out) / capacity * room))
    granted = min(room, max(used, round((device.granted - device.out) / capacity * room)))
    drawn = bar[0] * used + bar[1] * (granted - used) + bar[2] * (room - granted)
    name = f"GPU {device.index} {device.name}"[: titles - 1]
    state = (
        "" if device.health == "ok" and not device.drained else "  " + ("drained" if device.drained else device.health)
    )
    figures = f"{format_size(device.used - device.out)} of {format_size(device.capacity)}"
    figures += f" + {format_size(device.out)} out" if device.out else ""
    figures += "".join(f"  {cell}" for cell in says)
    style = "red" if device.health != "ok" else "yellow" if device.drained else ""
    return Line(f"{name:<{titles}}[{drawn}] {figures}{state}", style)
