"""`convgpu set`, `drain` and `devices`: changes of an administrator while containers run."""

from pathlib import Path
from typing import Final

import click

from convgpu.cli.completion import complete_container, complete_device
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import find, list_containers
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.run.injection import check_memory, check_priority, check_wait
from convgpu.cli.terminal.errors import EXIT_CODES, Refused
from convgpu.cli.terminal.options import as_json, checked, directory, volume_driver
from convgpu.cli.terminal.output import LAST, Column, age, echo_data, print_table
from convgpu.cli.terminal.telemetry import telemetry_cells
from convgpu.protocol.records import Device, LimitChange
from convgpu.protocol.requests import FOREVER
from convgpu.protocol.sizes import format_size

_SET: Final = """Change limit, longest pause or priority of a container that exists, running or not.

LIMIT is written as for --gpu-memory: 2g, 512m, 2GiB, 50%, or GPU-uuid:2g,GPU-uuid:4g. A higher limit holds at once. A
lower one than the container uses takes nothing away from it: nothing new is granted, and the limit goes down as
memory is freed. --wait and --priority hold at once, for allocations that wait already, too; what has waited for longer
is rejected.

\b
--json prints an object:
  devices      of the LIMIT, one object per GPU: uuid, limit (in force now), target, usage; in bytes
  wait         the longest pause in seconds; null without an end
  priority     as it is now
"""

_DRAIN: Final = """Give no new memory on a GPU, so that it empties; --undo gives again.

What runs goes on with what it has; who asks for more waits. DEVICE is an index or a UUID as `convgpu devices` shows
them; without it, shows which GPUs are drained.
"""

_DEVICES: Final = """Show the GPUs: what may be handed out, what is granted and used, and by whom else.

\b
--json prints a list in the order of their indices; sizes are bytes:
  uuid, index, name, total, capacity, granted, used, settling, external, drained, health,
  out (memory on the host), pool (host memory for it), promised (what may be granted),
  granule (limit of a container that names none), reuse_count (how many of those the
  promise holds), elastic (containers here whose memory may leave),
  telemetry (utilization in percent, temperature in degrees Celsius, power and power_limit in
  watts; null is what the GPU does not report), unlimited (containers that hold memory of it
  without a limit: name, id, size, started in ticks since boot, and kept: why they are not
  ended; empty if nothing permits them, null if that is not known; under strict rules also programs
  of the host, with their pid; without id: ended ones whose memory others keep, and kept: who may)
"""

_COLUMNS: Final = (
    Column("GPU", right=True),
    Column("NAME", shrinks=True, optional=LAST),
    *(Column(title, right=True) for title in ("CAPACITY", "GRANTED", "USED")),
    Column("EXTERNAL", right=True, optional=True),
    *(Column(title, right=True, sparse=True, optional=True) for title in ("BUSY", "TEMP", "POWER")),
    Column("STATE", shrinks=True),
)


def _check_wait(text: str) -> str:
    try:
        return text if text == FOREVER else check_wait(text)
    except ValueError as error:
        raise ValueError(f"{error}, or {FOREVER}") from error


@click.command("set", help=_SET, epilog=EXIT_CODES)
@click.argument("container", shell_complete=complete_container)
@click.argument("limit", required=False, callback=checked(check_memory))
@click.option(
    "--wait",
    callback=checked(_check_wait),
    metavar="DURATION",
    help=f"How long an allocation may be paused from now on: 30s, 5m, or {FOREVER}.",
)
@click.option(
    "--priority",
    callback=checked(check_priority),
    metavar="NUMBER",
    help="Of the containers that wait, those with a higher number are served first.",
)
@as_json
@directory
@volume_driver
def set_limit(
    *,
    container: str,
    limit: str | None,
    wait: str | None,
    priority: str | None,
    as_json: bool,
    directory: Path | None,
    driver: str,
) -> None:
    """Change a limit, a longest pause, a priority."""
    if limit is None and wait is None and priority is None:
        raise click.UsageError(f"say what to change: convgpu set {container} LIMIT, --wait 5m or --priority 10")
    scheduler = open_scheduler(directory, driver)
    entry = find(list_containers(scheduler, directory), container)
    changes = scheduler.set_limits(entry.container.name, limit, wait, priority)
    if as_json:
        echo_data(changes)
        return
    _show_limits(scheduler, entry.name, changes.devices)
    if wait is not None:
        longest = "without an end" if changes.wait is None else f"{age(changes.wait)} at most"
        click.echo(f"{entry.name}: its allocations are paused {longest}")
    if priority is not None:
        click.echo(f"{entry.name}: priority {changes.priority}")


def _show_limits(scheduler: Scheduler, name: str, changes: "tuple[LimitChange, ...]") -> None:
    gpus = {device.uuid: device.index for device in scheduler.devices().devices} if changes else {}
    for change in changes:
        text = f"{name}: limit {format_size(change.limit)} on GPU {gpus.get(change.uuid, change.uuid)}"
        if change.target != change.limit:
            text += f"; goes down to {format_size(change.target)} as it frees (it uses {format_size(change.usage)})"
        click.echo(text)


@click.command(help=_DRAIN, epilog=EXIT_CODES)
@click.argument("device", required=False, shell_complete=complete_device)
@click.option("--undo", is_flag=True, help="Give memory on it again.")
@directory
@volume_driver
def drain(*, device: str | None, undo: bool, directory: Path | None, driver: str) -> None:
    """Empty a GPU."""
    scheduler = open_scheduler(directory, driver)
    if device is None:
        if undo:
            raise click.UsageError("--undo needs a DEVICE; see which there are: convgpu devices")
        _show_devices(scheduler.devices().devices)
        return
    found = _find_device(scheduler, device)
    scheduler.drain(found.uuid, drained=not undo)
    now = _find_device(scheduler, device)
    state = f"is drained, {format_size(now.used)} are still in use" if now.drained else "gives memory"
    click.echo(f"GPU {now.index} {state}.")


def _find_device(scheduler: Scheduler, word: str) -> Device:
    devices = scheduler.devices().devices
    for device in devices:
        if word in {device.uuid, str(device.index)}:
            return device
    known = ", ".join(f"{device.index} ({device.uuid})" for device in devices) or "none"
    raise Refused(f"there is no GPU {word!r}.\nThere are: {known}")


@click.command(help=_DEVICES, epilog=EXIT_CODES)
@as_json
@directory
@volume_driver
def devices(*, as_json: bool, directory: Path | None, driver: str) -> None:
    """Show the GPUs."""
    found = sorted(open_scheduler(directory, driver).devices().devices, key=lambda device: device.index)
    if as_json:
        echo_data(found)
    else:
        _show_devices(found)


def _show_devices(found: "list[Device] | tuple[Device, ...]") -> None:
    rows, styles = [], []
    columns = (*_COLUMNS[:-1], Column("REUSE", right=True), _COLUMNS[-1]) if any(d.granule for d in found) else _COLUMNS
    for device in found:
        state = "drained" if device.drained else "ok"
        sick = device.health != "ok"
        sizes = (device.capacity, device.granted, device.used, device.external)
        reuse = (f"{device.elastic}/{device.reuse_count}",) if len(columns) > len(_COLUMNS) else ()
        state = device.health if sick else state
        does = telemetry_cells(device.telemetry)
        rows.append((str(device.index), device.name, *map(format_size, sizes), *does, *reuse, state))
        styles.append("red" if sick else "yellow" if device.drained else "")
    print_table(columns, rows, styles)
