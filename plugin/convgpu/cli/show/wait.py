"""`convgpu wait`: blocks until containers have got the memory that they wait for."""

import sys
import time
from pathlib import Path
from typing import Final

import click

from convgpu.cli.completion import complete_container
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import find, list_containers
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.terminal.errors import EXIT_CODES
from convgpu.cli.terminal.options import checked, directory, volume_driver
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.event_kinds import EventKind

_HELP: Final = """Wait until none of these containers waits for GPU memory.

Ends with 0 as soon as all that they were paused for is granted (at once if nothing is paused), and with 1 if an
allocation of them was rejected meanwhile, a container has ended, or the time of --timeout is over. For scripts:

\b
  convgpu wait train && notify-send "train has its memory"
"""

_STEP: Final = 0.5  # seconds between two questions


@click.command("wait", help=_HELP, epilog=EXIT_CODES)
@click.argument("containers", nargs=-1, required=True, shell_complete=complete_container)
@click.option("--timeout", callback=checked(lambda text: str(parse_duration(text))), metavar="TIME", help="As 30s, 5m.")
@directory
@volume_driver
def wait(*, containers: tuple[str, ...], timeout: str | None, directory: Path | None, driver: str) -> None:
    """Wait for memory."""
    scheduler = open_scheduler(directory, driver)
    listed = list_containers(scheduler, directory)
    names = {find(listed, word).container.name: word for word in containers}
    problem = _wait(scheduler, names, None if timeout is None else time.monotonic() + float(timeout))
    if problem:
        click.echo(problem, err=True)
        sys.exit(1)


def _wait(scheduler: Scheduler, names: dict[str, str], end: float | None) -> str:
    """Return why it was in vain, empty if all have their memory."""
    since = scheduler.events(1 << 62).next
    while True:
        events = scheduler.events(since)
        since = events.next
        for event in events.events:
            if event.container in names and event.kind in {EventKind.REJECTED, EventKind.ENDED, EventKind.REMOVED}:
                why = f": {event.reason}" if event.reason else ""
                return f"{names[event.container]}: {event.kind}{why}. See: convgpu history {names[event.container]}"
        waiting = [row.name for row in scheduler.containers() if row.name in names and row.state == "waiting"]
        if not waiting:
            return ""
        if end is not None and time.monotonic() > end:
            return f"{', '.join(names[name] for name in waiting)}: still waiting. See: convgpu ps"
        time.sleep(_STEP)
