"""Options of a volume: limits per device, longest pause of an allocation, priority; pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.protocol.durations import parse_duration
from convgpu.protocol.sizes import format_size, parse_size

KNOWN: Final[Mapping[str, str]] = {
    "admit": "`whole`: the first allocation waits until the whole limit is free, and the container never waits again; "
    "`part`: it takes what it needs; without it `part`",
    "gang": "a name: containers of one gang start together, with their whole limits, or not at all; `NAME:SIZE`: it "
    "has so many; without it none",
    "fixed": "of the limit, the most that cannot leave the GPU while the container is suspended: `1g`; without it a "
    "share for contexts and small allocations",
    "gpus": "the GPUs that the limit is for, by index or UUID: `0,1`, `GPU-uuid`, `all`; without it all",
    "memory": "the limit: `2g` on each of its GPUs, or `GPU-uuid:2g,GPU-uuid:4g`; without it the container's variable "
    "`CONVGPU_MEMORY` says it",
    "priority": "of its allocations, from -100 to 100; the higher ones are served first; without it 0",
    "suspend": "whether its memory may leave the GPUs: `no`; `auto`: when another container can use the room, or an "
    "administrator says so; without it `no`",
    "wait": "the longest pause of an allocation, which is then rejected: `30s`, `5m`; without it no end",
}
MAX_PRIORITY: Final = 100
_GANG: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})(?::([0-9]{1,3}))?", re.ASCII)
SUSPEND_CHOICES: Final = ("no", "auto")
LEAST_FIXED: Final = 768 << 20  # bytes: a context takes about 530 MiB


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
        is_whole: the first allocation waits until the whole limits are free.
        gang: name of its gang, empty without one. Then it `is_whole`.
        gang_size: how many containers the gang has, 0 if that is not said.
        may_leave: whether its memory may leave the devices.
        fixed: the most that cannot leave each device, in bytes; None: a share of the limit.
    """

    devices: Sequence[DeviceCapacity]
    limits: Mapping[str, int]
    wait: float | None
    priority: int = 0
    is_whole: bool = False
    gang: str = ""
    gang_size: int = 0
    may_leave: bool = False
    fixed: int | None = None

    def fixed_shares(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Return the most that cannot leave each device, in bytes, of these limits."""
        return {
            uuid: min(limit, self.fixed if self.fixed is not None else LEAST_FIXED + limit // 20)
            for uuid, limit in limits.items()
        }


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
    may_leave = _parse_suspend(options.get("suspend", "no"))
    is_whole, gang, gang_size = _parse_admission(options)
    fixed = _parse_fixed(options, limits, may_leave=may_leave)
    return Terms(chosen, limits, wait, priority, is_whole, gang, gang_size, may_leave, fixed)


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


def parse_gang(text: str) -> tuple[str, int]:
    """Return name and size of a gang, 0 without one.

    Raises:
        OptionError: an invalid form.
    """
    match = _GANG.fullmatch(text)
    if match is None or (match[2] is not None and int(match[2]) < 2):
        raise OptionError(
            f"gang={text}: give a name of letters, digits, `_`, `.` and `-`, and if you know how many containers it "
            "has, their number from 2 on: gang=train or gang=train:4"
        )
    return match[1], int(match[2] or 0)


def _parse_admission(options: Mapping[str, str]) -> tuple[bool, str, int]:
    admit, gang = options.get("admit"), ("", 0)
    if admit not in {None, "part", "whole"}:
        raise OptionError(
            f"admit={admit}: give whole (the first allocation waits until the whole limit is free) or part (it takes "
            "what it needs)"
        )
    if "gang" in options:
        gang = parse_gang(options["gang"])
        if admit == "part":
            raise OptionError("admit=part: a gang starts whole; leave out admit, or gang")
    return admit == "whole" or bool(gang[0]), *gang


def _parse_wait(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise OptionError(f"wait={text}: {error}") from error


def _parse_suspend(text: str) -> bool:
    if text not in SUSPEND_CHOICES:
        raise OptionError(f"suspend={text}: there are {', '.join(SUSPEND_CHOICES)}")
    return text != "no"


def _parse_fixed(options: Mapping[str, str], limits: Mapping[str, int], *, may_leave: bool) -> int | None:
    text = options.get("fixed")
    if text is None:
        return None
    if not may_leave:
        raise OptionError(f"fixed={text}: it says what stays on the GPU of memory that may leave: add suspend=auto")
    try:
        fixed = parse_size(text)
    except ValueError as error:
        raise OptionError(f"fixed={text}: {error}") from error
    smallest = min(limits.values(), default=fixed)
    if fixed > smallest:
        raise OptionError(f"fixed={text}: more than the limit; the largest that fits is fixed={smallest >> 20}m")
    return fixed


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
