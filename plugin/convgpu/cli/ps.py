"""`convgpu ps`: which container has how much GPU memory, and which waits."""

import json
import time
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from convgpu.cli.engine import Engine, EngineContainer
from convgpu.cli.errors import EXIT_CODES, Unavailable
from convgpu.cli.listing import COLUMNS, as_data, join, rows
from convgpu.cli.options import as_json, directory, volume_driver
from convgpu.cli.scheduler import DaemonDoor, PluginDoor, Scheduler

_HELP: Final = """Show the containers that share the GPUs: limit, grant, usage, and what they wait for.

LIMIT is the most a container may use on a GPU, GRANT what is set aside for it so far, USAGE what its processes
hold. STATE is created, running, waiting (an allocation of it is paused) or ended; SINCE is the age of its volume.
WAITS FOR is the size of each paused allocation, and for how long it has been paused.

\b
--json prints a list, oldest container first; sizes are bytes, times Unix seconds:
  volume       name of its ConvGPU volume
  containers   the Engine's containers with that volume: id, name, image
  state        created, running, waiting, ended
  created      when the volume was made
  gpus         per GPU: index, uuid, limit, grant, usage
  waiting      per paused allocation: uuid, size, call, pid, since, missing
  processes    per connected process: pid, program, since, devices (uuid, usage)
"""

_PIPE_WIDTH: Final = 300  # what reads a pipe wants whole names


@click.command(help=_HELP, epilog=EXIT_CODES)
@as_json
@directory
@volume_driver
def ps(*, as_json: bool, directory: Path | None, driver: str) -> None:
    """Show the containers that share the GPUs."""
    scheduler, engine = _sources(directory, driver)
    devices = scheduler.devices()
    listed = join(scheduler.containers(), engine)
    if as_json:
        click.echo(json.dumps(as_data(listed, devices), indent=2))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(_table(rows(listed, devices, time.time())))
    if not listed:
        click.echo("No container has a ConvGPU volume. Start one: convgpu run --gpu-memory 2g IMAGE", err=True)


def _sources(directory: Path | None, driver: str) -> tuple[Scheduler, dict[str, tuple[EngineContainer, ...]]]:
    if directory is None:
        engine = Engine.connect()
        return Scheduler(PluginDoor(engine.plugin(driver).socket)), engine.containers()
    scheduler = Scheduler(DaemonDoor(directory, timeout=2.0))
    try:
        return scheduler, Engine.connect().containers()
    except Unavailable:
        return scheduler, {}  # a scheduler without Docker: containers go by the names they were created with


def _table(lines: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for column in COLUMNS:
        right = column in {"GPU", "LIMIT", "GRANT", "USAGE", "SINCE"}
        # Names give way first on a narrow terminal; a size cut short would be a wrong one.
        cells = [] if column in {"CONTAINER", "IMAGE"} else [line[COLUMNS.index(column)] for line in lines]
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=True,
            min_width=max(len(cell) for cell in [column, *cells]),
        )
    for line in lines:
        style = "yellow" if line[COLUMNS.index("STATE")] == "waiting" else ""
        table.add_row(*(Text(cell) for cell in line), style=style)
    return table
