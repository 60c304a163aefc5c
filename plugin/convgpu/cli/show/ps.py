"""`convgpu ps`: which container has how much GPU memory, and which waits."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import NamedContainer, list_containers
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.show import selection
from convgpu.cli.show.container_rows import COLUMNS, Row, as_data, left_behind, rows, without_limit
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import as_json, checked, directory, volume_driver
from convgpu.cli.terminal.output import echo_all, echo_data, layout, width

_HELP: Final = """Show the containers that share the GPUs: limit, grant, usage, and what they wait for.

LIMIT is the most a container may use on a GPU, GRANT what is set aside for it so far, USAGE what its processes
hold. STATE is created, running, waiting (an allocation of it is paused) or ended; SINCE for how long. Below a
container that waits stands for how much, why, and who holds what it waits for. Containers that have ended hold nothing
and are shown with --all, until their volume is removed: docker rm -v. Below all stand containers that use a GPU
without a limit.

Of containers whose memory may leave (suspend=auto), ON CARD and OUT are the parts of USAGE on the GPU and on the host,
and STATE may also be stopping, stopped, suspended (by hand), waits for turn, restoring, or busy (did not stop in time).

\b
--json prints a list of all, oldest container first; sizes are bytes, times Unix seconds:
  volume       name of its ConvGPU volume
  containers   the Engine's containers with that volume: id, name, image, labels
  user         who runs it, by the label convgpu.user, which convgpu run sets; or empty
  state        created, running, waiting, ended
  since        when it came into that state
  created      when the volume was made
  priority     as it was given
  residency    null if its memory never leaves; else running, stopping, stopped, waiting, restoring, busy
  suspended    whether an administrator suspended it
  turn         null if its memory never leaves; else since, behind, due, switches, moved_out, moved_in, drain
  admit, gang  part or whole; name of its gang, or empty
  placement    of a container whose GPUs the scheduler chooses: count, limits, uuids, policy, compared; else null
  gpus         per GPU: index, uuid, limit, grant, usage, seen (by the driver), target (of a limit being lowered),
               out (of the usage, on the host), fixed (cannot leave), peak (highest usage seen)
  waiting      per paused allocation: uuid, size, call, pid, since, missing, reason, ahead, behind, free,
               deadline (of its wait), estimate (seconds more, by past runs of those it is behind)
  processes    per connected process: pid, program, since, devices (uuid, usage)
"""


def _check_filters(
    _context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(selection.check_filter(word) for word in words)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(help=_HELP, epilog=EXIT_CODES)
@as_json
@click.option("-a", "--all", "ended", is_flag=True, help="Show containers that have ended, too.")
@click.option("-q", "--quiet", is_flag=True, help="Print names only.")
@click.option(
    "-f",
    "--filter",
    "filters",
    multiple=True,
    callback=_check_filters,
    metavar="KEY=VALUE",
    help=f"Show containers of that {', '.join(selection.FILTERS)}; again for more.",
)
@click.option(
    "--format",
    "form",
    callback=checked(selection.check_format),
    metavar="TEXT",
    help=f"Print this for each container and GPU, as '{{{{.Name}}}} {{{{.State}}}}': .{', .'.join(selection.FIELDS)}.",
)
@click.option(
    "-w",
    "--watch",
    type=click.FloatRange(0.1, 3600),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show it again every so often, 2 s if not said, until Ctrl-C. In a terminal `top` shows more.",
)
@directory
@volume_driver
def ps(*, watch: float | None, directory: Path | None, driver: str, **form: Any) -> None:
    """Show the containers that share the GPUs."""
    if watch and form["as_json"]:
        raise click.UsageError("--watch shows a table; for programs: convgpu events --follow --json")
    scheduler = open_scheduler(directory, driver)
    _print(scheduler, directory, **form)
    with suppress(KeyboardInterrupt):  # the way to end it
        while watch:
            time.sleep(watch)
            click.clear()  # in a terminal only
            try:
                _print(scheduler, directory, **form)
            except Unavailable as error:  # it may be back with the next question
                click.echo(error.message.partition("\n")[0], err=True)


def _print(
    scheduler: Scheduler,
    directory: Path | None,
    *,
    as_json: bool,
    quiet: bool,
    filters: tuple[tuple[str, str], ...],
    form: str | None,
    ended: bool,
) -> None:
    devices = scheduler.devices()
    every = list_containers(scheduler, directory)
    listed = selection.choose(every, filters, devices, ended=ended or as_json)
    if as_json:
        echo_data(as_data(listed, devices))
    elif quiet:
        echo_all([(entry.name, "") for entry in listed])
    elif form is not None:
        echo_all([(line, "") for line in selection.format_rows(form, rows(listed, devices, time.time()))])
    else:
        lines = [] if filters else [*without_limit(devices.devices), *left_behind(devices.devices)]
        others = [Row(note=line, style="yellow") for line in lines]
        show([*rows(listed, devices, time.time()), *others], width())
    if not (listed or as_json or quiet or form):
        click.echo(_why_none(every, filters), err=True)


def _why_none(every: Sequence[NamedContainer], filters: Sequence[tuple[str, str]]) -> str:
    if not every:
        return "No container has a ConvGPU volume. Start one: convgpu run --gpu-memory 2g IMAGE"
    if filters:
        return "No container is like that. See all: convgpu ps --all"
    return f"All {len(every)} containers have ended. See them: convgpu ps --all"


def show(lines: list[Row], room: int | None) -> None:
    """Print the rows as a table with the notes between them."""
    head, *cells = layout(COLUMNS, [row.cells for row in lines if row.cells], room)
    left = iter(cells)
    echo_all([(head, "bold"), *((next(left) if row.cells else row.note, row.style) for row in lines)])
