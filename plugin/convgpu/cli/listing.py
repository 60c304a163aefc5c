"""The scheduler's containers joined with the Engine's, and rows to show them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from convgpu.cli.engine import EngineContainer
from convgpu.protocol.records import Container, Devices, Waiting
from convgpu.protocol.sizes import format_size

COLUMNS: Final = ("CONTAINER", "IMAGE", "GPU", "LIMIT", "GRANT", "USAGE", "STATE", "SINCE", "WAITS FOR")
_HEX_DIGITS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Listed:
    """A container of the scheduler, and the Engine's containers that have its volume (usually one)."""

    container: Container
    engine: tuple[EngineContainer, ...]

    @property
    def name(self) -> str:
        """The name for people: the Engine's, or else the volume's."""
        return ", ".join(entry.name for entry in self.engine) or shortened(self.container.name)

    @property
    def image(self) -> str:
        """The image, or a dash where no Engine knows the volume."""
        return ", ".join(sorted({entry.image for entry in self.engine})) or "-"


def shortened(name: str) -> str:
    """Return the first 12 characters of a name that the Engine made up, as Docker shows ids; others whole."""
    return name[:12] if len(name) == 64 and _HEX_DIGITS.issuperset(name) else name


def join(containers: Sequence[Container], engine: Mapping[str, tuple[EngineContainer, ...]]) -> tuple[Listed, ...]:
    """Return each container of the scheduler with its Engine containers, oldest first, then by name."""
    ordered = sorted(containers, key=lambda container: (container.created, container.name))
    return tuple(Listed(container, engine.get(container.name, ())) for container in ordered)


def rows(listed: Sequence[Listed], devices: Devices, now: float) -> list[tuple[str, ...]]:
    """Return one row per container and GPU, in the order of COLUMNS."""
    index = {device.uuid: str(device.index) for device in devices.devices}
    result: list[tuple[str, ...]] = []
    for entry in listed:
        container = entry.container
        head: tuple[str, str] = (entry.name, entry.image)
        tail: tuple[str, str] = (container.state, age(now - container.created))
        for share in container.devices:
            sizes = (format_size(share.limit), format_size(share.grant), format_size(share.usage))
            waits = _waits([row for row in container.waiting if row.uuid == share.uuid], now)
            result.append((*head, index.get(share.uuid, share.uuid), *sizes, *tail, waits))
            head, tail = ("", ""), ("", "")
        if not container.devices:
            result.append((*head, "-", "-", "-", "-", *tail, ""))
    return result


def _waits(waiting: Sequence[Waiting], now: float) -> str:
    return ", ".join(f"{format_size(row.size)} for {age(now - row.since)}" for row in waiting)


def age(seconds: float) -> str:
    """Return a span of time in its largest whole unit: `12s`, `5m`, `3h`, `2d`."""
    whole = max(0, int(seconds))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= unit:
            return f"{whole // unit}{name}"
    return f"{whole}s"


def as_data(listed: Sequence[Listed], devices: Devices) -> list[dict[str, Any]]:
    """Return what `convgpu ps --json` prints; its help text describes it."""
    index = {device.uuid: device.index for device in devices.devices}
    return [
        {
            "volume": entry.container.name,
            "containers": [{"id": found.id, "name": found.name, "image": found.image} for found in entry.engine],
            "state": entry.container.state,
            "created": entry.container.created,
            "gpus": [{"index": index.get(row.uuid), **row.model_dump()} for row in entry.container.devices],
            "waiting": [row.model_dump() for row in entry.container.waiting],
            "processes": [row.model_dump() for row in entry.container.sessions],
        }
        for entry in listed
    ]
