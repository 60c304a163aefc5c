"""`convgpu inspect --allocations`: what a container's processes say of their single allocations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import to_builtins

from convgpu.cli.connect.named_containers import NamedContainer
from convgpu.cli.terminal.output import Column, age
from convgpu.protocol.inspection.records import Allocation, Allocations, ProcessAllocations
from convgpu.protocol.records import Device
from convgpu.protocol.sizes import format_size

LONGEST: Final = 20  # allocations that are shown one by one; --json has all

GROUPS: Final = (
    Column("PID", right=True),
    Column("PROGRAM", shrinks=True),
    Column("CALL"),
    Column("GPU", right=True),
    Column("COUNT", right=True),
    Column("SIZE", right=True),
    Column("OLDEST", right=True),
)
LARGEST: Final = (
    Column("PID", right=True),
    Column("CALL"),
    Column("ADDRESS", right=True),
    Column("SIZE", right=True),
    Column("GPU", right=True),
    Column("AGE", right=True),
)


@dataclass(frozen=True, slots=True)
class Group:
    """Allocations of one process by one call on one device; `oldest` in seconds, None if no age is known."""

    call: str
    uuid: str
    count: int
    size: int
    oldest: int | None


def group(allocations: Iterable[Allocation]) -> list[Group]:
    """Return the allocations by call and device, those with most memory first."""
    found: dict[tuple[str, str], list[Allocation]] = {}
    for entry in allocations:
        found.setdefault((entry.call, entry.uuid), []).append(entry)
    groups = [
        Group(
            call,
            uuid,
            len(entries),
            sum(entry.size for entry in entries),
            max((entry.age for entry in entries if entry.age is not None), default=None),
        )
        for (call, uuid), entries in found.items()
    ]
    return sorted(groups, key=lambda one: (-one.size, one.call, one.uuid))


def group_rows(answer: Allocations, devices: Mapping[str, Device]) -> list[tuple[str, ...]]:
    """Return the rows of `GROUPS`: for each process its calls, and what belongs to no single one."""
    rows: list[tuple[str, ...]] = []
    for process in answer.processes:
        lines = [
            (one.call, _index(one.uuid, devices), str(one.count), format_size(one.size), _age(one.oldest))
            for one in group(process.allocations)
        ]
        if process.answer == "listed" and process.usage > process.size:
            lines.append(("shared pages, modules", "", "", format_size(process.usage - process.size), ""))
        head = (str(process.pid or "-"), process.program)
        for line in lines or [(_excuse(process), "-", "-", format_size(process.usage), "-")]:
            rows.append((*head, *line))
            head = ("", "")
    return rows


def largest_rows(answer: Allocations, devices: Mapping[str, Device]) -> list[tuple[str, ...]]:
    """Return the rows of `LARGEST`: the largest allocations of all processes."""
    every = [(process.pid, entry) for process in answer.processes for entry in process.allocations]
    every.sort(key=lambda row: (-row[1].size, row[0], row[1].address))
    return [
        (
            str(pid or "-"),
            entry.call,
            f"{entry.address:#x}",
            format_size(entry.size),
            _index(entry.uuid, devices),
            _age(entry.age),
        )
        for pid, entry in every[:LONGEST]
    ]


def remarks(answer: Allocations) -> list[str]:
    """Return what a reader of the tables has to know of what they do not show."""
    listed = sum(len(process.allocations) for process in answer.processes)
    count = sum(process.count for process in answer.processes)
    notes = []
    if count > listed:
        notes.append(f"{count - listed} of {count} allocations were left out: a process lists only so many at once")
    if listed > LONGEST:
        notes.append(f"the {LONGEST} largest of {listed} allocations are shown one by one; --json shows all")
    return notes


def as_data(entry: NamedContainer, answer: Allocations) -> dict[str, Any]:
    """Return the answer as data, with the allocations grouped as well."""
    processes = [
        {**to_builtins(process), "calls": [to_builtins(one) for one in group(process.allocations)]}
        for process in answer.processes
    ]
    return {"name": entry.name, "container": entry.container.name, "processes": processes}


def _excuse(process: ProcessAllocations) -> str:
    texts: Mapping[str, str] = {
        "silent": "did not answer",
        "unable": "its library is too old",
        "listed": "no allocations",
    }
    return texts[process.answer]


def _age(seconds: int | None) -> str:
    return "-" if seconds is None else age(seconds)


def _index(uuid: str, devices: Mapping[str, Device]) -> str:
    return str(devices[uuid].index) if uuid in devices else "-"
