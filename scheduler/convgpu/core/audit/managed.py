"""Managed memory that the hook does not account for: NVML counts it for no process; pure.

Seen on an H100 (driver 580, docs/measurements.md): managed memory is in use, no process is listed with it, and the
address space of the program that has it says how much that is, for the driver maps it where nothing else is mapped so.
That is what may lie on a device, or on the host. So a process has no more of it on a device than it maps, and no more
than lies there without an owner.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from convgpu.core.audit.attribution import NOISE, TOLERATED, UNCOUNTED, MemorySample

# Bytes by pid and device, for each process that has a session.
Usages = Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class Mapped:
    """What a process maps of managed memory.

    Attributes:
        size: bytes, on whatever device or on the host.
        start: when the process started, in clock ticks since boot.
        devices: where its container has a limit; it may have memory there if NVML lists it nowhere.
    """

    size: int
    start: int
    devices: AbstractSet[str] = frozenset()


def find_ownerless(samples: Sequence[MemorySample], used: Usages, own: Mapping[str, int]) -> dict[str, int]:
    """Return by device the bytes that are in use and nobody's, at least.

    Args:
        samples: of devices.
        used: what processes use by our ledger, managed memory too.
        own: bytes by device that the driver takes for itself.
    """
    found = {}
    for sample in samples:
        if sample.held is not None:
            listed = {**sample.held, **sample.ended}
            known = sum(listed.values()) + own[sample.device] + UNCOUNTED * len(listed)
            managed = sum(_accounted(sample, used, pid) for pid, device in used if device == sample.device)
            found[sample.device] = max(sample.used - known - managed, 0)
    return found


def complete(
    samples: Sequence[MemorySample], mapped: Mapping[int, Mapped], used: Usages, own: Mapping[str, int]
) -> list[MemorySample]:
    """Add to samples what processes have of managed memory that nobody accounts for.

    Args:
        samples: of devices, of one moment.
        mapped: by pid.
        used: as for find_ownerless.
        own: likewise.
    """
    ownerless, sessions = find_ownerless(samples, used, own), {pid for pid, _ in used}
    more: dict[str, dict[int, int]] = {device: {} for device in ownerless}
    for pid, one in mapped.items():
        accounted = {sample.device: _accounted(sample, used, pid) for sample in samples}
        # Of devices that were not sampled, all that it uses may be managed memory.
        elsewhere = sum(size for (own, device), size in used.items() if own == pid and device not in accounted)
        free = one.size - sum(accounted.values()) - elsewhere
        if free <= (TOLERATED if pid in sessions else NOISE):
            continue
        listed = {sample.device for sample in samples if pid in (sample.held or {})}
        for device in ownerless.keys() & (listed or one.devices):
            if (size := min(free, ownerless[device])) > NOISE:
                more[device][pid] = accounted[device] + size
    return [_add(sample, more.get(sample.device, {}), mapped) for sample in samples]


def _accounted(sample: MemorySample, used: Usages, pid: int) -> int:
    """Return the managed memory of a process on a device by our ledger: what it uses and is not listed with."""
    return max(used.get((pid, sample.device), 0) - (sample.held or {}).get(pid, 0), 0)


def _add(sample: MemorySample, more: Mapping[int, int], mapped: Mapping[int, Mapped]) -> MemorySample:
    if not more:
        return sample
    held = dict(sample.held or {})
    for pid, size in more.items():
        held[pid] = held.get(pid, 0) + size
    starts = {pid: mapped[pid].start for pid in more}
    return replace(sample, held=held, starts=starts | dict(sample.starts))
