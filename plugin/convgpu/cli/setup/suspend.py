"""`convgpu suspend` and `resume`: take a container off its GPUs, and bring it back."""

import sys
import time
from pathlib import Path
from typing import Final

import click

from convgpu.cli.completion import complete_container
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import NamedContainer, find, list_containers
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.terminal.errors import EXIT_CODES
from convgpu.cli.terminal.options import as_json, directory, volume_driver
from convgpu.cli.terminal.output import echo_data
from convgpu.protocol.records import Container, Devices
from convgpu.protocol.sizes import format_size

_SUSPEND: Final = """Stop a container before the GPU, and move its memory to the host until it is resumed.

Its programs stand still at their next call that needs the GPU. Contexts and small allocations stay on the card, unless
--deep has the driver take them too (from driver 570 on; about half a second more). The container must have been started
with --suspend auto (volume option suspend=auto). Ends when all of its memory that can leave has left; with --no-wait at
once.

\b
--json prints an object: container, state, suspended, gpus (uuid, usage, out, fixed; bytes).
"""

_RESUME: Final = """Let a suspended container run again, when its turn comes.

Its memory comes back to the same addresses. Ends when it runs; with --no-wait at once. --json as for suspend.
"""

_STEP: Final = 0.05  # seconds between questions
_RUNS: Final = ("running", "busy")

_no_wait = click.option("--no-wait", is_flag=True, help="Do not wait for the end of the move.")


@click.command(help=_SUSPEND, epilog=EXIT_CODES)
@click.argument("container", shell_complete=complete_container)
@click.option("--deep", is_flag=True, help="Take contexts off the GPU as well, by the driver's checkpoint.")
@_no_wait
@as_json
@directory
@volume_driver
def suspend(*, container: str, deep: bool, no_wait: bool, as_json: bool, directory: Path | None, driver: str) -> None:
    """Suspend a container."""
    scheduler = open_scheduler(directory, driver)
    entry = find(list_containers(scheduler, directory), container)
    scheduler.suspend(entry.container.name, deep=deep)
    _finish(scheduler, entry, is_suspended=True, waits=not no_wait, as_json=as_json)


@click.command(help=_RESUME, epilog=EXIT_CODES)
@click.argument("container", shell_complete=complete_container)
@_no_wait
@as_json
@directory
@volume_driver
def resume(*, container: str, no_wait: bool, as_json: bool, directory: Path | None, driver: str) -> None:
    """Resume a container."""
    scheduler = open_scheduler(directory, driver)
    entry = find(list_containers(scheduler, directory), container)
    scheduler.resume(entry.container.name)
    _finish(scheduler, entry, is_suspended=False, waits=not no_wait, as_json=as_json)


def _finish(scheduler: Scheduler, entry: NamedContainer, *, is_suspended: bool, waits: bool, as_json: bool) -> None:
    """Wait for the move, say on stderr how far it is, and print what came of it."""
    said = ""
    progress = sys.stderr.isatty()
    found = scheduler.container(entry.container.name)
    while waits and not is_over(found, is_suspended=is_suspended):
        line = describe(entry.name, found)
        if progress and line != said:  # written over the one before
            click.echo(f"\r{line}\033[K", err=True, nl=False)
            said = line
        time.sleep(_STEP)
        found = scheduler.container(entry.container.name)
    if said:
        click.echo("\r\033[K", err=True, nl=False)
    if as_json:
        shares = [{name: getattr(row, name) for name in ("uuid", "usage", "out", "fixed")} for row in found.devices]
        echo_data(
            {"container": entry.name, "state": found.residency, "suspended": found.suspended, "gpus": shares},
        )
        return
    click.echo(describe(entry.name, found))
    if found.suspended and (hint := promised_still(found, scheduler.devices())):
        click.echo(hint, err=True)


def promised_still(container: Container, devices: Devices) -> str:
    """Return why nobody is given what a container left on its GPUs; empty where others may have it."""
    left = {share.uuid for share in container.devices if share.out > 0}
    whole = [device for device in devices.devices if device.uuid in left and device.promised <= device.capacity]
    if not whole:
        return ""
    return (
        "No more is promised than the GPU has, so its room is kept for it. To give it to others, set"
        " CONVGPU_OVERSUBSCRIBE above 1."
    )


def is_over(container: Container, *, is_suspended: bool) -> bool:
    """Say whether a container is where it was told to go, or can never get there: it runs no program."""
    if not container.sessions:
        return True
    if not is_suspended:
        return container.residency in _RUNS
    stays = 0 if container.deep else 1
    left = any(share.usage - share.out - stays * share.fixed > 0 for share in container.devices)
    return container.residency == "stopped" and not left


def describe(name: str, container: Container) -> str:
    """Return one line about where the memory of a container is."""
    out = format_size(sum(share.out for share in container.devices))
    stays = format_size(sum(share.usage - share.out for share in container.devices))
    match container.residency:
        case "stopping":
            return f"{name}: is being stopped"
        case "stopped":
            return f"{name}: stopped; {out} on the host, {stays} on its GPUs"
        case "restoring":
            return f"{name}: comes back; {out} are still on the host"
        case "waiting":
            return f"{name}: waits for its turn; {out} on the host"
        case "busy":
            return f"{name}: runs, for its work on the GPU did not end in time; it is asked again"
        case _:
            return f"{name}: runs with {stays} on its GPUs"
