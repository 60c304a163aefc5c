"""`convgpu trace`: the calls of a container that take memory, live."""

import json
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from msgspec import to_builtins

from convgpu.cli.completion import complete_container
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import find, list_containers
from convgpu.cli.show import event_text
from convgpu.cli.terminal.errors import EXIT_CODES
from convgpu.cli.terminal.options import as_json, directory, volume_driver
from convgpu.cli.terminal.output import echo
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.inspection.records import TracedCall
from convgpu.protocol.sizes import format_size

_STEP: Final = 0.25  # seconds between two questions; the scheduler lets go of the container after three seconds

_NONE: Final = 10**15  # a number that no call has: the first question only begins

_HELP: Final = """Follow the calls of a container that take GPU memory: accepted, paused, granted, rejected.

Ctrl-C ends it. Calls are reported from now on, at most some thousand in a second; a line says how many more there
were. Nobody but the container pays for it, and only while it is followed.

\b
--json prints one object per line; sizes are bytes, times Unix seconds:
  sequence, time, kind, pid, program, call, uuid, size, and where they apply
  waited (seconds), reason; or missed: calls that were too many
"""


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.argument("container", shell_complete=complete_container)
@as_json
@directory
@volume_driver
def trace(*, container: str, as_json: bool, directory: Path | None, driver: str) -> None:
    """Follow the calls of a container."""
    from convgpu.cli.connect.requests_http import RequestsHttp  # noqa: PLC0415 - only a feed imports the library

    scheduler = open_scheduler(directory, driver, RequestsHttp)
    name = find(list_containers(scheduler, directory), container).container.name
    gpus = {device.uuid: device.index for device in scheduler.devices().devices}
    since = scheduler.trace(name, _NONE).next
    click.echo(f"Following {container}; Ctrl-C ends it.", err=True)
    # Notices that the reader of a pipe has closed it: nothing might be written for hours.
    reader = select.poll()
    reader.register(sys.stdout, 0)
    while True:
        try:
            if reader.poll(_STEP * 1000):
                return
        except KeyboardInterrupt:
            return  # the way to end it
        answer = scheduler.trace(name, since)
        since = answer.next
        for call in answer.calls:
            _print(call, gpus, as_json=as_json)
        if answer.missed:
            _print_missed(answer.missed, as_json=as_json)


def _print(call: TracedCall, gpus: Mapping[str, int], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(to_builtins(call)))
        return
    echo(format_line(call, gpus), event_text.STYLES.get(call.kind, ""))


def _print_missed(count: int, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"missed": count}))
    else:
        echo(f"          and {count} more that were accepted", "dim")


def format_line(call: TracedCall, gpus: Mapping[str, int]) -> str:
    """Return the line for a call; `gpus`: index by UUID."""
    kind = call.kind.upper() if call.kind in {EventKind.PAUSED, EventKind.REJECTED} else call.kind
    waited = "" if call.waited is None else f" after {call.waited:.1f}s"
    why = f": {call.reason}" if call.reason else ""
    where = f"GPU {gpus.get(call.uuid, call.uuid or '-')}"
    who = f"{call.program} (pid {call.pid})" if call.pid else call.program
    what = f"{call.call:<24} {format_size(call.size):>9}"
    return f"{event_text.time_of_day(call.time)}  {kind:<8}  {what}  {where}  {who}{waited}{why}"
