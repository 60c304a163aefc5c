"""Plain tables and lines: for people in 80 columns, and for programs that cut them."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from convgpu.logs.printable import printable

_MIN_NAME: Final = 8  # characters that are left of a name
GAP: Final = "  "
LAST: Final = 9


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: its head.
        right: numbers and sizes stand to the right.
        shrinks: may be cut short where the terminal is narrow, with an ellipsis; a size cut short would be a wrong one.
        optional: is left out where the terminal is narrow, 1 before 2, LAST when the others are cut short; 0: never.
        sparse: is left out while none of its cells has anything.
    """

    title: str
    right: bool = False
    shrinks: bool = False
    optional: int = 0
    sparse: bool = False


def width() -> int | None:
    """Return the width of the terminal; None for a pipe or file, whose reader wants whole names."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def colour() -> bool:
    """Tell whether stdout gets colours (https://no-color.org, TERM=dumb)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def echo(line: str, style: str = "") -> None:
    """Print a line of one style: `dim`, `bold`, or the name of a colour."""
    echo_all([(line, style)])


def echo_all(lines: Sequence[tuple[str, str]]) -> None:
    """Print lines with their styles, in one write; characters that are not printable are escaped."""
    if not lines:
        return
    coloured = colour()
    shown = [(printable(line), style) for line, style in lines]
    click.echo("\n".join(_styled(line, style) if coloured else line for line, style in shown), color=coloured)


def _styled(line: str, style: str) -> str:
    if not style:
        return line
    return click.style(line, **{style: True}) if style in {"dim", "bold"} else click.style(line, fg=style)


def echo_data(data: object) -> None:
    """Print data as JSON: in UTF-8, whatever the terminal's own encoding is (RFC 8259)."""
    import msgspec  # noqa: PLC0415 - tables and lines need none

    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))


def layout(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None) -> list[str]:
    """Return the head and one line per row, none longer than `room` as far as that can be without cutting sizes.

    Args:
        columns: what stands where.
        rows: a cell per column.
        room: characters; None: as many as it needs.
    """
    shown = [i for i, column in enumerate(columns) if not column.sparse or any(row[i] for row in rows)]
    cells = [[column.title for column in columns], *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]

    def excess() -> int:
        return 0 if room is None else sum(widths[i] for i in shown) + len(GAP) * (len(shown) - 1) - room

    for i in sorted(shown, key=lambda i: (columns[i].optional, -i)):
        if excess() > 0 and 0 < columns[i].optional < LAST:
            shown.remove(i)
    for i in shown:
        if excess() > 0 and columns[i].shrinks:
            widths[i] = max(widths[i] - excess(), len(columns[i].title), _MIN_NAME)
    shown = [i for i in shown if excess() <= 0 or columns[i].optional != LAST]
    return [GAP.join(_cell(row[i], widths[i], right=columns[i].right) for i in shown).rstrip() for row in cells]


def _cell(text: str, room: int, *, right: bool) -> str:
    if len(text) > room:
        text = text[: room - 1] + "…"
    return text.rjust(room) if right else text.ljust(room)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print a table; `styles`, if given, has one for each row."""
    head, *lines = layout(columns, rows, width())
    echo_all([(head, "bold"), *zip(lines, styles or [""] * len(lines), strict=True)])


def age(seconds: float) -> str:
    """Return a span of time in its largest whole unit: `12s`, `5m`, `3h`, `2d`."""
    whole = max(0, int(seconds))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= unit:
            return f"{whole // unit}{name}"
    return f"{whole}s"
