"""Gangs: whether a further container can belong to one, and whether their limits can be had together. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from convgpu.core.volume_options import DeviceCapacity, OptionError, Terms
from convgpu.protocol.sizes import format_size

_MOST_TRIES: Final = 5000  # ways to place a gang; one that was not refused by then may start
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A container of a gang: its volume, its terms and its limits in bytes per device, empty while it has none."""

    name: str
    terms: Terms
    limits: Mapping[str, int]

    @property
    def share(self) -> "Share":
        """What it needs: its limits on all its devices, or on as many of them as the scheduler chooses."""
        return Share(self.limits, self.terms.choice.count if self.terms.choice else len(self.limits))


@dataclass(frozen=True, slots=True)
class Share:
    """A container that needs its limits, in bytes by device, on `count` of these devices."""

    limits: Mapping[str, int]
    count: int


def check_gang(new: Member, members: Iterable[Member], devices: Sequence[DeviceCapacity]) -> None:
    """Check that a container can belong to its gang.

    Args:
        new: the container; with other limits if it is among the members already.
        members: of its gang.
        devices: of the host.

    Raises:
        OptionError: the gang has all its containers, another size, or could never have its limits together.
    """
    if not new.terms.gang:
        return
    others = [member for member in members if member.name != new.name]
    _check_size(new.terms, others)
    room = {device.uuid: device.nominal or device.capacity for device in devices}
    shares = [member.share for member in others if member.limits]
    if not new.limits or can_all_fit(room, [*shares, new.share]):
        return
    if all(share.count == len(share.limits) for share in [*shares, new.share]):
        _refuse_device(new, others, room)
    largest = _largest(new, shares, room)
    wish = f"the largest limit that fits is memory={largest}m, or " if largest else ""
    raise OptionError(
        f"gang={new.terms.gang}: its {len(others) + 1} containers cannot have their limits at the same time on the "
        f"{len(room)} GPUs of this host; {wish}lower the limits of the others"
    )


def can_all_fit(room: Mapping[str, int], shares: Sequence[Share]) -> bool:
    """Return whether the limits of all shares can be had at the same time.

    Args:
        room: bytes by device.
        shares: each goes to `count` of its devices.
    """
    largest_first = sorted(shares, key=lambda share: (len(share.limits) - share.count, -max(share.limits.values())))
    return _fit(room, largest_first, iter(range(_MOST_TRIES)))


def take(room: Mapping[str, int], limits: Mapping[str, int], chosen: Sequence[str]) -> dict[str, int]:
    """Return the room that is left by device when limits are taken on the chosen ones."""
    return {**room, **{device: room[device] - limits[device] for device in chosen}}


def _fit(room: Mapping[str, int], shares: Sequence[Share], tries: Iterator[int]) -> bool:
    if not shares:
        return True
    first, rest = shares[0], shares[1:]
    fitting = [device for device, limit in first.limits.items() if limit <= room.get(device, 0)]
    seen = set()
    for chosen in combinations(fitting, first.count):
        # Devices with the same room and the same limits are one as good as the other.
        kind = tuple(sorted((room[d], *(share.limits.get(d, -1) for share in shares)) for d in chosen))
        if kind in seen:
            continue
        seen.add(kind)
        if next(tries, None) is None:
            return True
        if _fit(take(room, first.limits, chosen), rest, tries):
            return True
    return False


def _largest(new: Member, shares: Sequence[Share], room: Mapping[str, int]) -> int:
    """Return the largest limit in MiB with which the container fits, the same on all its devices; 0 for none."""
    own = [device.uuid for device in new.terms.devices] if new.terms.choice else list(new.limits)
    low, high = 0, max(new.limits.values()) >> 20
    while low < high:
        middle = (low + high + 1) // 2
        limits = dict.fromkeys(own, middle * _MIB)
        fits = can_all_fit(room, [*shares, replace(new.share, limits=limits)])
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _refuse_device(new: Member, others: Sequence[Member], room: Mapping[str, int]) -> None:
    """Raise OptionError for the first device of which limits want more than there is."""
    for device, capacity in room.items():
        needed = sum(member.limits.get(device, 0) for member in others)
        own = new.limits.get(device, 0)
        if own and needed + own > capacity:
            raise OptionError(
                f"gang={new.terms.gang}: its limits on {device} would add up to {format_size(needed + own)}, "
                f"and that has {format_size(capacity)} to hand out; {_way_out(capacity - needed)}"
            )


def _way_out(room: int) -> str:
    if room >= _MIB:
        return f"the largest limit that fits is memory={room >> 20}m, or choose another GPU with the option gpus"
    return "choose another GPU with the option gpus, or lower the limits of the others"


def _check_size(terms: Terms, others: Sequence[Member]) -> None:
    sizes = sorted({member.terms.gang_size for member in others})
    if sizes and sizes != [terms.gang_size]:
        form = f"{terms.gang}:{sizes[0]}" if sizes[0] else terms.gang
        raise OptionError(f"gang={terms.gang}: the others of this gang say gang={form}; write the same")
    if terms.gang_size and len(others) >= terms.gang_size:
        names = ", ".join(member.name for member in others)
        raise OptionError(
            f"gang={terms.gang}:{terms.gang_size}: the gang has its {terms.gang_size} containers already ({names}); "
            "remove one that has ended (docker volume rm), or name another gang"
        )
