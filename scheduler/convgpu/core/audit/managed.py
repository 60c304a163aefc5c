"""Memory that NVML counts for no process: managed memory that the hook does not account for, and imported one; pure.

Seen on an H100 (driver 580, docs/measurements.md): managed memory is in use, no process is listed with it, and the
address space of the program that has it says how much that is, for the driver maps it where nothing else is mapped so.
That is what may lie on a device, or on the host. So a process has no more of it on a device than it maps, and all of a
container together no more than lies there without an owner: who shares an address space (`CLONE_VM`) maps the same.

Imported memory is listed for its owner. After the owner's end whoever imported it uses it, and while anybody else keeps
it too, it is listed for none of them (seen on an H200).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from convgpu.core.audit.attribution import NOISE, MemorySample, uncounted

# Bytes by pid, and by device, of each process that has a session.
Usages = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Mapped:
    """What a process maps of managed memory.

    Attributes:
        size: bytes, on whatever device or on the host; more than there is anywhere if nobody can tell.
        start: when the process started, in clock ticks since boot.
        devices: where it may have memory: where NVML lists it; if nowhere, where its container has a limit.
        used: bytes that its sessions used on all devices when that was read.
        at: seconds on the clock of the caller when it was read.
    """

    size: int
    start: int
    devices: AbstractSet[str] = frozenset()
    used: int = 0
    at: float = math.inf


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
            known = sum(listed.values()) + own[sample.device] + uncounted(listed.values())
            managed = sum(_accounted([sample], pid, sizes).get(sample.device, 0) for pid, sizes in used.items())
            found[sample.device] = max(sample.used - known - managed, 0)
    return found


def complete(
    samples: Sequence[MemorySample],
    mapped: Mapping[int, Mapped],
    used: Usages,
    own: Mapping[str, int],
    container_of: Callable[[int], str | None],
    begun: float = -math.inf,
) -> list[MemorySample]:
    """Add to samples what processes have of managed memory that nobody accounts for.

    Args:
        samples: of devices, of one moment.
        mapped: by pid.
        used: as for find_ownerless.
        own: likewise.
        container_of: the container of a pid, None for an external process.
        begun: since when `used` holds. What was read before was read beside other figures, of samples that nobody has
            any more: then all that the process used is taken for managed memory.
    """
    ownerless = find_ownerless(samples, used, own)
    listed = {sample.device: sample.held or {} for sample in samples}
    more: dict[str, dict[int, int]] = {device: {} for device in ownerless}
    left: dict[str | None, dict[str, int]] = defaultdict(lambda: dict(ownerless))  # what a container may still have
    # Who has a session comes last: some of what it has is tolerated.
    for pid, one in sorted(mapped.items(), key=lambda row: row[0] in used):
        accounted = _accounted(samples, pid, used.get(pid, {}))
        free = one.size - max(sum(accounted.values()), one.used if one.at < begun else 0)
        # What is tolerated is so for all memory of a process together, listed or mapped: by `attribute`, not here.
        if free <= NOISE:
            continue
        room = left[container_of(pid)]
        for device in ownerless.keys() & one.devices:
            if (size := min(free, room[device])) > NOISE:
                # `ownerless` lacks a little for each that is listed: what the driver took for it, at most.
                room[device] -= size - uncounted([listed[device].get(pid, 0)])
                more[device][pid] = accounted.get(device, 0) + size
    return [_add(sample, more.get(sample.device, {}), mapped) for sample in samples]


def add_imported(
    samples: Sequence[MemorySample],
    imported: Mapping[str, Mapping[int, int]],
    used: Usages,
    own: Mapping[str, int],
    container_of: Callable[[int], str | None],
) -> list[MemorySample]:
    """Add to samples what listed processes imported of memory without an owner, all of a container no more than that.

    The driver tells of what living ones own, too, who imported it. So a process has what it imported beyond all that
    others of its container are listed with: nobody else's memory is charged twice (decision 195).

    Args:
        samples: as `complete` returns them.
        imported: bytes by device and pid.
        used: as for find_ownerless.
        own: likewise.
        container_of: the container of a pid, None for an external process.
    """
    ownerless = find_ownerless(samples, used, own)
    found = []
    for sample in samples:
        held, imports, taken = (
            dict(sample.held or {}),
            dict[int, int](),
            dict[str | None, int](),
        )  # the last by container
        listed: dict[str | None, int] = defaultdict(int)  # likewise
        for pid, size in held.items():
            listed[container_of(pid)] += size
        for pid, size in imported.get(sample.device, {}).items():
            container = container_of(pid)
            owned = listed[container] - (sample.held or {}).get(pid, 0)
            more = min(size - owned, ownerless.get(sample.device, 0) - taken.get(container, 0))
            if pid in held and more > NOISE:
                taken[container] = taken.get(container, 0) + more
                held[pid] += more
                imports[pid] = more
        found.append(replace(sample, held=held, imported=imports) if sample.held is not None else sample)
    return found


def _accounted(samples: Sequence[MemorySample], pid: int, used: Mapping[str, int]) -> dict[str, int]:
    """Return by device the managed memory of a process by our ledger: what it uses and is not listed with.

    Of devices that were not sampled, all that it uses may be managed memory.
    """
    listed = {sample.device: (sample.held or {}).get(pid, 0) for sample in samples}
    return {device: max(size - listed.get(device, 0), 0) for device, size in used.items()}


def _add(sample: MemorySample, more: Mapping[int, int], mapped: Mapping[int, Mapped]) -> MemorySample:
    if not more:
        return sample
    held = dict(sample.held or {})
    for pid, size in more.items():
        held[pid] = held.get(pid, 0) + size
    starts = {pid: mapped[pid].start for pid in more}
    return replace(sample, held=held, starts=starts | dict(sample.starts))
