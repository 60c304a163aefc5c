"""`convgpu top`: the same as `ps`, live."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import list_containers
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.show import event_text, selection
from convgpu.cli.show.top_view import Controls, Line, Snapshot, view
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import directory, volume_driver

_HELP: Final = """Show live who has how much GPU memory, and who waits for whom; q ends it.

Per GPU a bar of what is used and, lighter, what is granted beyond that; below the list of `convgpu ps`. Keys: s sorts
by age, usage, waiting first or name; space holds the picture; the arrows, j, k and page keys scroll.
"""

_ESCAPES: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b": "q"}
_STYLES: Final = {"": "", "bold": "bold", "dim": "dim", "yellow": "yellow", "red": "red"}
_OUR_LINES: Final = 4  # beside those of the list and of the devices


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two polls.",
)
@directory
@volume_driver
def top(*, interval: float, directory: Path | None, driver: str) -> None:
    """Show it live."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise click.UsageError("top needs a terminal. For a pipe: convgpu ps --json   Without cursor: convgpu ps")
    scheduler = open_scheduler(directory, driver, RequestsHttp)
    seen = _poll(scheduler, directory)  # an error is printed before the screen is taken
    console = Console(highlight=False)
    live = Live(console=console, screen=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), _keyboard() as keys, live:  # Ctrl-C also ends a poll that waits for its answer
        _show(live, console, scheduler, directory, seen, keys, interval)


def _show(
    live: Live,
    console: Console,
    scheduler: Scheduler,
    directory: Path | None,
    seen: Snapshot,
    keys: int,
    interval: float,
) -> None:
    controls, trouble = Controls(), ""
    bar = "█▒ " if console.encoding.lower().replace("-", "") == "utf8" else "#+ "
    while True:
        size = (console.width, console.height)
        lines = view(seen, controls, event_text.time_of_day(seen.now), size, bar)
        if trouble:
            lines[0] = Line(trouble[: console.width], "red")
        live.update(_text(lines), refresh=True)
        key = _read_key(keys, interval)
        if key in {"q", "\x03"}:
            return
        if key:
            controls = controls.press(key, max(1, size[1] - _OUR_LINES - len(seen.devices.devices)))
        if not controls.held:
            try:
                seen, trouble = _poll(scheduler, directory), ""
            except Unavailable as error:
                trouble = error.message.partition("\n")[0]  # the plugin may be back with the next poll


def _poll(scheduler: Scheduler, directory: Path | None) -> Snapshot:
    devices = scheduler.devices()
    listed = selection.choose(list_containers(scheduler, directory), (), devices, ended=False)
    return Snapshot(time.time(), devices, tuple(listed))


def _text(lines: list[Line]) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        text.append(("\n" if number else "") + line.text, _STYLES.get(line.style, ""))
    return text


@contextmanager
def _keyboard() -> Iterator[int]:
    """Read single keys from the terminal, without echo; restore it afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read_key(descriptor: int, seconds: float) -> str:
    """Return the key that was pressed within `seconds`, empty if none was; the end of the terminal is `q`."""
    try:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        data = os.read(descriptor, 16) if ready else None
    except (KeyboardInterrupt, OSError):
        return "q"
    if data is None:
        return ""
    return "q" if not data else _ESCAPES.get(data, data[:1].decode("latin-1"))
