"""Options of a volume: limits per device, longest pause of an allocation, priority; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.protocol.durations import parse_duration
from convgpu.protocol.sizes import format_size, parse_size

KNOWN: Final[Mapping[str, str]] = {
    "gpus": "the GPUs that the limit is for, by index or UUID: `0,1`, `GPU-uuid`, `all`; without it all",
    "memory": "the limit: `2g` on each of its GPUs, or `GPU-uuid:2g,GPU-uuid:4g`; without it the container's variable "
    "`CONVGPU_MEMORY` says it",
    "priority": "of its allocations, from -100 to 100; the higher ones are served first; without it 0",
    "wait": "the longest pause of an allocation, which is then rejected: `30s`, `5m`; without it no end",
}
MAX_PRIORITY: Final = 100


class OptionError(ValueError):
    """An invalid option; one line that names valid ones."""


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """The capacity of a device, against which options are checked; in bytes.

    Attributes:
        uuid: of the device.
        index: its number among the devices of this host.
        capacity: bytes that may be handed out now.
        nominal: the capacity without external memory.
        trouble: why it has no capacity, empty if it has.
    """

    uuid: str
    index: int
    capacity: int
    nominal: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """The parsed options of a volume.

    Attributes:
        devices: of the container.
        limits: bytes per device UUID; empty when the volume names none.
        wait: longest pause of an allocation in seconds, None without end.
        priority: -100 to 100; higher first.
    """

    devices: Sequence[DeviceCapacity]
    limits: Mapping[str, int]
    wait: float | None
    priority: int = 0


def parse_options(options: Mapping[str, str], devices: Sequence[DeviceCapacity]) -> Terms:
    """Return the terms that the options give.

    Raises:
        OptionError: an unknown option or an invalid value.
    """
    unknown = sorted(options.keys() - set(KNOWN))
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}: known are {', '.join(KNOWN)}")
    wait = _parse_wait(options["wait"]) if "wait" in options else None
    priority = _parse_priority(options["priority"]) if "priority" in options else 0
    chosen = _choose(options.get("gpus", "all"), devices)
    limits = parse_limits(options["memory"], chosen) if "memory" in options else {}
    return Terms(chosen, limits, wait, priority)


def parse_limits(text: str, devices: Sequence[DeviceCapacity]) -> dict[str, int]:
    """Return the limits of `2g` (one for each device) or `GPU-uuid:2g,GPU-uuid:4g`.

    In the first form a device without capacity (it is full, or lost) is no error if another device has some:
    allocations on it wait.

    Raises:
        OptionError: an unknown form or device, or a limit above the capacity; the text names a limit that fits.
    """
    by_uuid = {device.uuid: device for device in devices}
    limits: dict[str, int] = {}
    may_wait = ":" not in text and any(device.capacity for device in devices)
    for part in text.split(",") if ":" in text else [f"{device.uuid}:{text}" for device in devices]:
        uuid, _, size = part.strip().rpartition(":")
        if uuid not in by_uuid or uuid in limits:
            known = ", ".join(by_uuid)
            raise OptionError(f"memory={text}: {part!r} names no device of this container once; devices: {known}")
        try:
            limits[uuid] = parse_size(size)
        except ValueError as error:
            raise OptionError(f"memory={text}: {error}") from error
        capacity = by_uuid[uuid].capacity or (by_uuid[uuid].nominal if may_wait else 0)
        if not capacity:
            raise OptionError(f"memory={text}: {uuid} has nothing to hand out: {by_uuid[uuid].trouble}")
        if limits[uuid] > capacity:
            raise OptionError(
                f"memory={text}: {uuid} has {format_size(capacity)} to hand out; "
                f"the largest limit that fits is memory={capacity >> 20}m"
            )
    return limits


def _parse_wait(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise OptionError(f"wait={text}: {error}") from error


def _parse_priority(text: str) -> int:
    digits = text.removeprefix("-")
    priority = int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 3 else None
    if priority is None or abs(priority) > MAX_PRIORITY:
        raise OptionError(f"priority={text}: give a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}; higher first")
    return priority


def _choose(text: str, devices: Sequence[DeviceCapacity]) -> list[DeviceCapacity]:
    if text.strip() == "all":
        usable = [device for device in devices if device.nominal]
        if not usable:
            why = "; ".join(f"{device.uuid}: {device.trouble}" for device in devices)
            raise OptionError(f"no GPU has anything to hand out: {why}")
        return usable
    names = {str(device.index): device for device in devices} | {device.uuid: device for device in devices}
    chosen: dict[str, DeviceCapacity] = {}
    for part in text.split(","):
        device = names.get(part.strip())
        if device is None:
            raise OptionError(f"gpus={text}: no device {part.strip()!r}; devices: all, {', '.join(names)}")
        chosen[device.uuid] = device
    return list(chosen.values())
