"""The gangs of this host, for checks of a further container or of another limit."""

from collections.abc import Iterable, Mapping, Sequence

from convgpu.core.gangs import Member, check_gang
from convgpu.core.machine import Machine
from convgpu.core.volume_options import DeviceCapacity, Terms


def check_member(
    machine: Machine,
    known: Iterable[tuple[str, Terms]],
    devices: Sequence[DeviceCapacity],
    new: Member,
) -> None:
    """Check that a container can belong to its gang with these limits.

    Args:
        machine: knows the limits of the others.
        known: all containers of this host, by name.
        devices: the capacities of the devices.
        new: the container.

    Raises:
        OptionError: it cannot; the text names what would do.
    """
    members = [Member(name, terms, _limits(machine, name)) for name, terms in known if terms.gang == new.terms.gang]
    check_gang(new, members, devices)


def _limits(machine: Machine, name: str) -> Mapping[str, int]:
    """Return the limits of a container; of one whose devices the scheduler chooses, on all that it may get."""
    if machine.choice(name) is not None:
        return machine.offer(name)
    accounts = machine.accounts(name)
    return {device: max(account.limit, account.target or 0) for device, account in accounts.items()}
