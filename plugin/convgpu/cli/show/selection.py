"""Which containers `convgpu ps` shows, and in which form, in the words of `docker ps`. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from convgpu.cli.connect.named_containers import ENDED, NamedContainer
from convgpu.cli.show.container_rows import Row
from convgpu.cli.terminal.errors import did_you_mean
from convgpu.protocol.records import Devices

FIELDS: Final = ("Name", "Image", "User", "GPU", "Limit", "Grant", "Usage", "OnCard", "Out", "State", "Since")
"""Of `--format`, in the order of the table's columns."""

_PLACE: Final = re.compile(r"\{\{\s*\.([A-Za-z]+)\s*\}\}")
_ESCAPES: Final = {r"\t": "\t", r"\n": "\n"}


def _has_label(entry: NamedContainer, value: str, _gpus: Mapping[str, str]) -> bool:
    """Say whether it has a label `KEY`, or the label `KEY=VALUE`, as `docker ps --filter label=` has it."""
    key, equals, wanted = value.partition("=")
    return key in entry.labels and (not equals or entry.labels[key] == wanted)


def _has_gpu(entry: NamedContainer, value: str, gpus: Mapping[str, str]) -> bool:
    return any(value in {row.uuid, gpus.get(row.uuid)} for row in entry.container.devices)


_FILTERS: Final[Mapping[str, Callable[[NamedContainer, str, Mapping[str, str]], bool]]] = {
    "name": lambda entry, value, _: value in entry.name,
    "image": lambda entry, value, _: value in entry.image,
    "state": lambda entry, value, _: value == entry.container.state,
    "gpu": _has_gpu,
    "user": lambda entry, value, _: value == entry.user,
    "label": _has_label,
    "gang": lambda entry, value, _: value == entry.container.gang,
}
FILTERS: Final = tuple(_FILTERS)


def check_filter(text: str) -> tuple[str, str]:
    """Return key and value of `key=value`.

    Raises:
        ValueError: it is of another form, or the key is not known.
    """
    key, equals, value = text.partition("=")
    if not equals or key not in _FILTERS:
        raise ValueError(f"{text!r}: write KEY=VALUE with a key of {', '.join(FILTERS)}.{did_you_mean(key, FILTERS)}")
    return key, value


def choose(
    listed: Sequence[NamedContainer], filters: Sequence[tuple[str, str]], devices: Devices, *, ended: bool
) -> list[NamedContainer]:
    """Return the containers that all filters let through; of several values of one key any will do.

    Args:
        listed: all that there are.
        filters: keys and values.
        devices: by which GPUs are known.
        ended: those that have ended too, also where no filter asks for a state.
    """
    gpus = {device.uuid: str(device.index) for device in devices.devices}
    wanted: dict[str, list[str]] = {}
    for key, value in filters:
        wanted.setdefault(key, []).append(value)
    ended = ended or "state" in wanted
    return [
        entry
        for entry in listed
        if (ended or entry.container.state != ENDED)
        and all(any(_FILTERS[key](entry, value, gpus) for value in values) for key, values in wanted.items())
    ]


def check_format(text: str) -> str:
    """Return a form whose fields are all known.

    Raises:
        ValueError: one of them is not.
    """
    known = {field.lower() for field in FIELDS}
    for name in _PLACE.findall(text):
        if name.lower() not in known:
            raise ValueError(f"there is no field .{name}; there are .{', .'.join(FIELDS)}.{did_you_mean(name, FIELDS)}")
    return text


def format_rows(form: str, lines: Sequence[Row]) -> list[str]:
    """Return a line for each container and GPU; a container's second GPU repeats its name."""
    for escape, character in _ESCAPES.items():
        form = form.replace(escape, character)
    result: list[str] = []
    last: tuple[str, ...] = ()
    for cells in (line.cells for line in lines if line.cells):
        is_next_gpu = not cells[0]
        last = tuple(map(_or, cells, last)) if is_next_gpu else cells
        result.append(_fill(form, last))
    return result


def _or(cell: str, before: str) -> str:
    return cell or before


def _fill(form: str, cells: Sequence[str]) -> str:
    fields = {field.lower(): cell for field, cell in zip(FIELDS, cells, strict=True)}
    return _PLACE.sub(lambda match: fields[match[1].lower()], form)
