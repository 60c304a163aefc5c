"""Gangs: whether a further container can belong to one. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from convgpu.core.volume_options import DeviceCapacity, OptionError, Terms
from convgpu.protocol.sizes import format_size


@dataclass(frozen=True, slots=True)
class Member:
    """A container of a gang: its volume, its terms and its limits in bytes per device, empty while it has none."""

    name: str
    terms: Terms
    limits: Mapping[str, int]


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
    for device in devices:
        needed = sum(member.limits.get(device.uuid, 0) for member in others)
        own, capacity = new.limits.get(device.uuid, 0), device.nominal or device.capacity
        if own and needed + own > capacity:
            raise OptionError(
                f"gang={new.terms.gang}: its limits on {device.uuid} would add up to {format_size(needed + own)}, "
                f"and that has {format_size(capacity)} to hand out; {_way_out(capacity - needed)}"
            )


def _way_out(room: int) -> str:
    if room >= 1 << 20:
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
