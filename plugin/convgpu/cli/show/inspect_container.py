"""`convgpu inspect`: all that is known of a container."""

import time
from pathlib import Path
from typing import Final

import click

from convgpu.cli.completion import complete_container
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import NamedContainer, find, list_containers
from convgpu.cli.show import allocations as shown
from convgpu.cli.show.container_rows import as_data, notes, places, state_of
from convgpu.cli.show.network import network
from convgpu.cli.terminal.errors import EXIT_CODES
from convgpu.cli.terminal.options import as_json, directory, volume_driver
from convgpu.cli.terminal.output import Column, age, echo, echo_data, layout, width
from convgpu.protocol.inspection.records import Allocations
from convgpu.protocol.records import Container, Device, Devices, Placement
from convgpu.protocol.sizes import format_size

_HELP: Final = """Show all that is known of containers: limits, processes, what waits and behind whom.

With --allocations each process is asked for its single allocations: the call that made it, address, size and age.
One that does not answer within two seconds is shown without.

A container goes by its name, the first characters of its id, or its volume. --json prints a list of the objects
that `convgpu ps --json` describes; with --allocations one of name, container and processes: pid, program, answer
(listed, silent, unable), count, size, usage, allocations (call, uuid, address, size, age), and calls, the same grouped.
"""

_SHARES: Final = (
    Column("GPU", right=True),
    *(Column(title, right=True) for title in ("LIMIT", "GRANT", "USAGE", "DRIVER SAYS")),
    *(Column(title, right=True, sparse=True) for title in ("ON CARD", "OUT", "FIXED")),
    Column("UUID", shrinks=True),
)
_COMPARED: Final = (
    Column("CHOICE", right=True),
    *(Column(title, right=True) for title in ("LIMIT", "CAPACITY", "FREE", "PROMISED", "CONTAINERS")),
    Column("", shrinks=True),
)
_OBSTACLES: Final = {
    "drained": "was drained",
    "lost": "did not answer",
    "gang": "too little beside its gang",
    "capacity": "had too little",
    "hidden": "not in the container",
}
_PROCESSES: Final = (
    Column("PID", right=True),
    Column("PROGRAM", shrinks=True),
    Column("SINCE", right=True),
    Column("GPU", right=True),
    Column("USAGE", right=True),
)


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.argument("containers", nargs=-1, required=True, metavar="CONTAINER...", shell_complete=complete_container)
@click.option("--allocations", is_flag=True, help="Ask the processes for their single allocations.")
@as_json
@directory
@volume_driver
def inspect(
    *, containers: tuple[str, ...], allocations: bool, as_json: bool, directory: Path | None, driver: str
) -> None:
    """Show all that is known of containers."""
    scheduler = open_scheduler(directory, driver)
    devices = scheduler.devices()
    listed = list_containers(scheduler, directory)
    found = [find(listed, word) for word in containers]
    asked = {entry.container.name: scheduler.allocations(entry.container.name) for entry in found if allocations}
    if as_json:
        whole = [shown.as_data(entry, asked[entry.container.name]) for entry in found if allocations]
        echo_data(whole if allocations else as_data(found, devices))
        return
    names = {entry.container.name: entry.name for entry in listed}
    for number, entry in enumerate(found):
        if number:
            echo("")
        _show(entry, devices, names, time.time())
        if allocations:
            _show_allocations(asked[entry.container.name], devices)


def _show(entry: NamedContainer, devices: Devices, names: dict[str, str], now: float) -> None:
    by_uuid = {device.uuid: device for device in devices.devices}
    container = entry.container
    since = container.created if container.since is None else container.since
    echo(entry.name, "bold")
    ids = [f"{found.id[:12]} ({found.image})" for found in entry.engine]
    facts = {
        "Container": ", ".join(ids) or "not known to the Engine",
        "Volume": container.name,
        "State": f"{state_of(container)} for {age(now - since)}",
        "Created": f"{age(now - container.created)} ago",
        "Priority": str(container.priority) if container.priority else "",
        "Pauses": f"{age(container.wait)} at most" if container.wait is not None else "",
        "Admitted": "as a whole" if container.admit == "whole" else "",
        "Gang": container.gang,
        "Placed": _place(container, by_uuid),
        "Card turn": _turn(container, now),
        "Network": network(entry.engine),
    }
    for title, fact in facts.items():
        if fact:
            echo(f"  {title + ':':<11}{fact}")
    for note in notes(container, by_uuid, names, now):
        echo(f"  {note}", "yellow")
    _table(_SHARES, _shares(entry, by_uuid))
    if container.placement is not None and container.placement.policy:
        _table(_COMPARED, _compared(container.placement, by_uuid))
    if container.sessions:
        _table(_PROCESSES, _processes(entry, by_uuid, now))


def _show_allocations(answer: Allocations, devices: Devices) -> None:
    by_uuid = {device.uuid: device for device in devices.devices}
    if not answer.processes:
        echo("")
        echo("  No process uses a GPU.")
        return
    _table(shown.GROUPS, shown.group_rows(answer, by_uuid))
    if largest := shown.largest_rows(answer, by_uuid):
        _table(shown.LARGEST, largest)
    for remark in shown.remarks(answer):
        echo(f"  {remark}", "dim")


def _place(container: Container, devices: dict[str, Device]) -> str:
    placement = container.placement
    if placement is None:
        return ""
    if not placement.uuids:
        return (
            f"not yet; {placement.count} of {len(placement.limits)} GPUs will be chosen when its first process starts"
        )
    gpus = ", ".join(_index(uuid, devices) for uuid in placement.uuids)
    return f"on GPU {gpus}, by {placement.policy}" if placement.policy else f"on GPU {gpus}, which it was given"


def _turn(container: Container, now: float) -> str:
    turn = container.turn
    if turn is None:
        return ""
    runs = container.residency in {"running", "busy"} and turn.since
    parts = [f"for {age(now - turn.since)}"] if runs else []
    parts.append(f"{turn.switches} switches, {format_size(turn.moved_out)} out, {format_size(turn.moved_in)} back")
    if turn.drain is not None:
        parts.append(f"stopped within {turn.drain * 1000:.0f} ms last")
    return "; ".join(parts)


def _compared(placement: Placement, devices: dict[str, Device]) -> list[tuple[str, ...]]:
    """Return the figures that the choice compared: limits and grants of others at that time."""
    return [
        (
            _index(row.uuid, devices),
            *(format_size(size) for size in (row.limit, row.capacity, row.free, row.promised)),
            str(row.containers),
            "chosen" if row.uuid in placement.uuids else _OBSTACLES.get(row.obstacle or "", row.obstacle or ""),
        )
        for row in placement.compared
    ]


def _shares(entry: NamedContainer, devices: dict[str, Device]) -> list[tuple[str, ...]]:
    return [
        (
            _index(share.uuid, devices),
            *(format_size(size) for size in (share.limit, share.grant, share.usage)),
            "-" if share.seen is None else format_size(share.seen),
            *places(entry.container, share),
            format_size(share.fixed) if entry.container.residency is not None else "",
            share.uuid,
        )
        for share in entry.container.devices
    ]


def _processes(entry: NamedContainer, devices: dict[str, Device], now: float) -> list[tuple[str, ...]]:
    result: list[tuple[str, ...]] = []
    for session in entry.container.sessions:
        head = (str(session.pid or "-"), session.program, age(now - session.since))
        for share in session.devices:
            result.append((*head, _index(share.uuid, devices), format_size(share.usage)))
            head = ("", "", "")
        if not session.devices:
            result.append((*head, "-", "-"))
    return result


def _table(columns: tuple[Column, ...], rows: list[tuple[str, ...]]) -> None:
    room = width()
    echo("")
    head, *lines = layout(columns, rows, None if room is None else room - 2)
    echo(f"  {head}", "bold")
    for line in lines:
        echo(f"  {line}")


def _index(uuid: str, devices: dict[str, Device]) -> str:
    return str(devices[uuid].index) if uuid in devices else "?"
