"""Checks of a container against the others of this host: its gang, its devices, and who is there already."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from convgpu.core.gangs import Member, check_gang
from convgpu.core.machine import Machine
from convgpu.core.oversubscription import check_reuse
from convgpu.core.volume_options import DeviceCapacity, OptionError, Terms, beside_host, parse_limits, parse_options
from convgpu.daemon.storage.rows import Volume

log = logging.getLogger(__name__)


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
    if not new.terms.gang:
        return  # there may be thousands of others
    members = [_member(machine, name, terms) for name, terms in known if terms.gang == new.terms.gang]
    check_gang(new, members, devices)


def _member(machine: Machine, name: str, terms: Terms) -> Member:
    """Return a container with its limits; while its devices are still to be chosen, on all that it may get.

    Where they are chosen it has its limits on these: it stays there for as long as it waits for the others.
    """
    if machine.choice(name) is not None and machine.placement(name) is None:
        return Member(name, terms, machine.offer(name))
    accounts = machine.accounts(name)
    limits = {device: max(account.limit, account.target or 0) for device, account in accounts.items()}
    return Member(name, replace(terms, choice=None), limits)


def check_reuse_counts(machine: Machine, new: Member, devices: Sequence[DeviceCapacity]) -> None:
    """Check that a container whose memory may leave does not exceed the reuse count of its devices.

    Args:
        machine: knows who is there.
        new: the container; of a choice, as many devices as it needs must have room for it.
        devices: of the host.

    Raises:
        OptionError: it does; the text names what would do.
    """
    if not new.terms.may_leave:
        return
    wanted, full = new.share.count, list[OptionError]()
    for device in (device for device in devices if device.uuid in new.limits):
        try:
            present = machine.elastic_beside(new.name, device.uuid)
            check_reuse(f"GPU {device.index}", present, machine.reuse(device.uuid))
        except OptionError as error:
            full.append(error)
    if full and len(new.limits) - len(full) < wanted:
        raise full[0]


def read_terms(volume: Volume, devices: Sequence[DeviceCapacity]) -> tuple[Terms, Mapping[str, int]]:
    """Return the terms and the limits of a volume of an earlier run; no limits: none are set yet.

    Raises:
        OptionError: a device is missing, or smaller than its limit.
    """
    options = volume.options_in_force
    if not volume.limits:
        return replace(parse_options(options, devices), choice=volume.choice), {}
    limits = _usable_limits(volume, devices)
    # Indices may have changed with the devices; the limits name their devices by UUID.
    options = {name: text for name, text in options.items() if name not in {"gpus", "memory"}}
    own = [device for device in devices if device.uuid in limits]
    return replace(parse_options(options, own), limits=limits, choice=volume.choice), limits


def _usable_limits(volume: Volume, devices: Sequence[DeviceCapacity]) -> Mapping[str, int]:
    """Return the limits of a volume of an earlier run on the devices that have anything to hand out.

    Raises:
        OptionError: a device is missing, or smaller than its limit.
    """
    if volume.options.get("backing") == "unified":
        devices = [beside_host(device) for device in devices]
    nominal = {device.uuid: device.nominal for device in devices if device.nominal}
    usable = {u for u in nominal if volume.choice is None or volume.limits.get(u, 0) <= nominal[u]}
    limits = {uuid: limit for uuid, limit in volume.limits.items() if uuid in usable} or volume.limits
    for uuid in volume.limits.keys() - limits.keys():
        log.warning("volume %s is used without %s, which has nothing to hand out", volume.name, uuid)
    _check_limits(limits, devices)
    return limits


def _check_limits(limits: Mapping[str, int], devices: Sequence[DeviceCapacity]) -> None:
    """Check limits of an earlier run against the current devices.

    Raises:
        OptionError: a device is missing, or smaller than the limit.
    """
    if limits:
        parse_limits(",".join(f"{uuid}:{_text(limit)}" for uuid, limit in limits.items()), devices)


def _text(size: int) -> str:
    """Return a size as text: in MiB, or in bytes unless it is whole MiB."""
    mebibytes, rest = divmod(size, 1 << 20)
    return str(size) if rest else f"{mebibytes}m"
