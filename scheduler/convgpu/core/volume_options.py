"""Options of a volume: limits per device, longest pause of an allocation, priority; pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from convgpu.core.placement import Choice
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.sizes import MIB, format_size, parse_share, parse_size

KNOWN: Final[Mapping[str, str]] = {
    "admit": "`whole`: the first allocation waits until the whole limit is free, and the container never waits again; "
    "`part`: it takes what it needs; without it `part`",
    "backing": "what its memory is made of: `vmm`, the GPU's own; `unified`: managed memory, so that one container can "
    "have more than its GPU, which it has alone while it runs; without it `vmm`",
    "gang": "a name: containers of one gang start together, with their whole limits, or not at all; `NAME:SIZE`: it "
    "has so many; without it none",
    "fixed": "of the limit, the most that cannot leave the GPU while the container is suspended: `1g`; without it a "
    "share for contexts and small allocations",
    "gpus": "the GPUs that the limit is for: `any`, one that the scheduler chooses; `any:2`, so many; by index or UUID "
    "`0,1`, `GPU-uuid`; `all`. Without it those that the container is given, and of all GPUs `any`",
    "memory": "the limit: `2g` on each of its GPUs, `50%` of what each has to hand out, or `GPU-uuid:2g,GPU-uuid:50%`; "
    "without it the container's variable `CONVGPU_MEMORY` says it",
    "priority": "of its allocations, from -100 to 100; the higher ones are served first; without it 0",
    "suspend": "whether its memory may leave the GPUs: `no`; `auto`: when another container can use the room, or an "
    "administrator says so; without it `no`",
    "wait": "the longest pause of an allocation, which is then rejected: `30s`, `5m`; without it no end",
}
MAX_PRIORITY: Final = 100
_GANG: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})(?::([0-9]{1,3}))?", re.ASCII)
SUSPEND_CHOICES: Final = ("no", "auto")
BACKINGS: Final = ("vmm", "unified")
_BESIDE_UNIFIED: Final[Mapping[str, str]] = {
    "suspend": "it has its GPU alone, and the driver moves its memory: leave out suspend, or backing",
    "fixed": "it has its GPU alone: leave out fixed",
    "gang": "it has its GPU alone, which the others of a gang would wait for: leave out gang, or backing",
}
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
        drained: whether it gives no new grants.
        host: bytes of host memory that one container may have beside it (`backing=unified`).
        context: bytes that a CUDA context takes at least; 0 while none was seen.
    """

    uuid: str
    index: int
    capacity: int
    nominal: int = 0
    trouble: str = ""
    drained: bool = False
    host: int = 0
    context: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """The parsed options of a volume.

    Attributes:
        devices: of the container, or those from which the scheduler chooses.
        limits: bytes per device UUID; empty when the volume names none.
        wait: longest pause of an allocation in seconds, None without end.
        priority: -100 to 100; higher first.
        is_whole: the first allocation waits until the whole limits are free.
        gang: name of its gang, empty without one. Then it `is_whole`.
        gang_size: how many containers the gang has, 0 if that is not said.
        may_leave: whether its memory may leave the devices.
        fixed: the most that cannot leave each device, in bytes; None: a share of the limit.
        choice: what the scheduler is to choose of the devices; None when the container has all of them.
        is_unified: its memory is the driver's managed memory, and it has its device alone.
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
    choice: Choice | None = None
    is_unified: bool = False

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
    wait, priority = parse_pause_and_priority(options)
    may_leave = _parse_suspend(options.get("suspend", "no"))
    is_whole, gang, gang_size = _parse_admission(options)
    names_gpus = ":" in options.get("memory", "")
    choice = _parse_choice(options.get("gpus"), devices, names_gpus=names_gpus)
    chosen = _choose("all" if choice else options.get("gpus", "all"), devices)
    if choice is not None and choice.count == len(chosen):
        if not choice.is_default:
            _check_drained(f"gpus={options['gpus']}", chosen, devices)
        choice = None  # there is nothing to choose
    elif choice is None and options.get("gpus", "all").strip() != "all":
        _check_drained(f"gpus={options['gpus']}", chosen, devices)
    is_unified = _parse_backing(options, chosen, choice)
    if is_unified:
        chosen = [beside_host(device) for device in chosen]
        is_whole = True
    limits = parse_limits(options["memory"], chosen, choice) if "memory" in options else {}
    if names_gpus:
        _check_drained(f"memory={options['memory']}", [device for device in chosen if device.uuid in limits], devices)
    fixed = _parse_fixed(options, limits, may_leave=may_leave)
    return Terms(chosen, limits, wait, priority, is_whole, gang, gang_size, may_leave, fixed, choice, is_unified)


def parse_pause_and_priority(options: Mapping[str, str]) -> tuple[float | None, int]:
    """Return the longest pause in seconds (None without end) and the priority.

    Raises:
        OptionError: an invalid value.
    """
    wait = _parse_wait(options["wait"]) if "wait" in options else None
    return wait, _parse_priority(options["priority"]) if "priority" in options else 0


def parse_limits(text: str, devices: Sequence[DeviceCapacity], choice: Choice | None = None) -> dict[str, int]:
    """Return the limits of `2g` or `50%` (one for each device) or `GPU-uuid:2g,GPU-uuid:50%`.

    With a choice, on the devices that can hold their limit, of which enough must be able to hold it now.

    In the first form a device without capacity (it is full, or lost) is no error if another device has some:
    allocations on it wait.

    Raises:
        OptionError: an unknown form or device, or a limit above the capacity; the text names a limit that fits.
    """
    limits = parse_sizes(text, devices)
    limits = _check_least(text, limits, devices, is_offer=choice is not None)
    if choice is not None:
        return _check_offer(text, limits, devices, choice)
    may_wait = ":" not in text and any(device.capacity for device in devices)
    for device in devices:
        if device.uuid in limits:
            _check_limit(text, limits[device.uuid], device, may_wait=may_wait)
    return {device.uuid: limits[device.uuid] for device in devices if device.uuid in limits}


def _check_least(
    text: str, limits: Mapping[str, int], devices: Sequence[DeviceCapacity], *, is_offer: bool
) -> dict[str, int]:
    """Return the limits in which a CUDA context has room: of an offer the others are left out.

    Raises:
        OptionError: there is none, or one without room for a context; the text names a limit that does.
    """
    small = [device for device in devices if limits.get(device.uuid, device.context) < device.context]
    if not small or (is_offer and len(small) < len(limits)):
        return {uuid: limit for uuid, limit in limits.items() if uuid not in {device.uuid for device in small}}
    least = min(small, key=lambda device: device.context) if is_offer else max(small, key=lambda device: device.context)
    raise OptionError(
        f"memory={text}: a CUDA context alone takes {format_size(least.context)} of {least.uuid}, so no program could "
        f"begin; the smallest limit that does is memory={-(-least.context >> 20)}m, and programs need more"
    )


def parse_sizes(text: str, devices: Sequence[DeviceCapacity]) -> dict[str, int]:
    """Return what `parse_limits` returns, whatever the devices can hold.

    Raises:
        OptionError: an unknown form or device.
    """
    known, limits = {device.uuid: device for device in devices}, dict[str, int]()
    # A share of a device that is lost or full is nothing; the others can be had all the same.
    able = [device for device in devices if "%" not in text or device.nominal or device.capacity] or devices
    for part in text.split(",") if ":" in text else [f"{device.uuid}:{text}" for device in able]:
        uuid, _, size = part.strip().rpartition(":")
        if uuid not in known or uuid in limits:
            names = ", ".join(known)
            raise OptionError(f"memory={text}: {part!r} names no device of this container once; devices: {names}")
        try:
            limits[uuid] = _size_on(known[uuid], size)
        except ValueError as error:
            raise OptionError(f"memory={text}: {error}") from error
    return limits


def _size_on(device: DeviceCapacity, text: str) -> int:
    """Return the bytes of a size, or of a share of the device's capacity without external memory, in whole MiB.

    Raises:
        ValueError: an unknown form; or a share of a device that has nothing.
    """
    percents = parse_share(text)
    if percents is None:
        return parse_size(text)
    size = (device.nominal or device.capacity) * percents // 100 // MIB * MIB
    if size == 0:
        raise ValueError(f"{text} of {device.uuid} is nothing: {device.trouble or 'name a size'}")
    return size


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


def _parse_backing(options: Mapping[str, str], devices: Sequence[DeviceCapacity], choice: Choice | None) -> bool:
    text = options.get("backing", "vmm")
    if text not in BACKINGS:
        raise OptionError(f"backing={text}: there are {', '.join(BACKINGS)}")
    if text == "vmm":
        return False
    for name, why in _BESIDE_UNIFIED.items():
        if options.get(name, "no") != "no":
            raise OptionError(f"backing=unified and {name}={options[name]}: {why}")
    if options.get("admit") == "part":
        raise OptionError("backing=unified and admit=part: it starts with its whole GPU: leave out admit")
    if choice is not None or len(devices) != 1:
        example = devices[0].index if devices else 0
        raise OptionError(f"backing=unified: it has one GPU, and alone: name it, as in gpus={example}")
    return True


def beside_host(device: DeviceCapacity) -> DeviceCapacity:
    """Return what one container may have of a device and of the host's memory beside it."""
    if not device.capacity:
        return device
    nominal = device.nominal + device.host if device.nominal else 0
    return replace(device, capacity=device.capacity + device.host, nominal=nominal)


def _check_limit(text: str, limit: int, device: DeviceCapacity, *, may_wait: bool) -> None:
    capacity = device.capacity or (device.nominal if may_wait else 0)
    if not capacity:
        raise OptionError(f"memory={text}: {device.uuid} has nothing to hand out: {device.trouble}")
    if limit > capacity:
        raise OptionError(
            f"memory={text}: {device.uuid} has {format_size(capacity)} to hand out; "
            f"the largest limit that fits is memory={capacity >> 20}m"
        )


def _check_offer(
    text: str, limits: Mapping[str, int], devices: Sequence[DeviceCapacity], choice: Choice
) -> dict[str, int]:
    """Return the limits on devices that can hold them, at least when external memory has left.

    Raises:
        OptionError: fewer than are to be chosen can hold their limit now and are not drained.
    """
    named = [device for device in devices if device.uuid in limits]
    able = [device for device in named if device.capacity >= limits[device.uuid]]
    if sum(not device.drained for device in able) >= choice.count:
        return {d.uuid: limits[d.uuid] for d in named if max(d.capacity, d.nominal) >= limits[d.uuid]}
    wanted = f"{choice.count} GPUs that" if choice.count > 1 else "a GPU that"
    drained = [str(device.index) for device in able if device.drained]
    if len(able) >= choice.count:
        raise OptionError(
            f"memory={text}: of the GPUs that can hold it, {', '.join(drained)} are drained, so there is not {wanted} "
            f"could be chosen: put one back into service (convgpu drain {drained[0]} --undo), or say gpus=all and wait"
        )
    sizes = sorted((device.capacity for device in named if not device.drained), reverse=True)
    if len(sizes) < choice.count or not sizes[choice.count - 1]:
        raise OptionError(f"memory={text}: there is not {wanted} has memory to hand out now: try gpus=all")
    raise OptionError(
        f"memory={text}: there is not {wanted} can hold it; "
        f"the largest limit that fits is memory={sizes[choice.count - 1] >> 20}m"
    )


def _check_drained(text: str, named: Sequence[DeviceCapacity], devices: Sequence[DeviceCapacity]) -> None:
    """Refuse GPUs that are named, or are all that there are to choose, while one gives no new grants."""
    drained = [str(device.index) for device in named if device.drained]
    if drained:
        usable = [device for device in devices if device.nominal]
        left = [str(device.index) for device in usable if not device.drained]
        fewer = f", ask for gpus=any:{len(left)} or fewer, or for gpus={','.join(left)}" if left else ""
        raise OptionError(
            f"{text}: of {len(usable)} GPUs that can be had, drained are {', '.join(drained)}: put one back into "
            f"service (convgpu drain {drained[0]} --undo){fewer}, or say gpus=all and wait"
        )


def _parse_choice(text: str | None, devices: Sequence[DeviceCapacity], *, names_gpus: bool) -> Choice | None:
    """Return what the option `gpus` leaves to the scheduler; None when it names devices, or the limits do."""
    if text is None:
        return None if names_gpus else Choice(is_default=True)
    word, colon, count = text.strip().partition(":")
    if word != "any":
        return None
    if colon and not (count.isascii() and count.isdecimal() and 1 <= len(count) <= 3 and int(count) > 0):
        raise OptionError(f"gpus={text}: say how many GPUs the scheduler chooses, as in gpus=any:2")
    usable = sum(device.nominal > 0 for device in devices)
    number = int(count) if colon else 1
    if number > usable:
        raise OptionError(f"gpus={text}: this host has {usable} that can be had; ask for gpus=any:{usable} or fewer")
    return Choice(number)


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
    chosen = set()
    for part in text.split(","):
        device = names.get(part.strip())
        if device is None:
            raise OptionError(f"gpus={text}: no device {part.strip()!r}; devices: any, any:N, all, {', '.join(names)}")
        chosen.add(device.uuid)
    return [device for device in devices if device.uuid in chosen]  # programs count them in the host's order
