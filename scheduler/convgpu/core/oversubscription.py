"""The arithmetic of oversubscription: threshold, promise, host memory, granule and reuse count; pure.

The *promise* of a device is its capacity times the *threshold*; what exceeds the capacity is taken of the host. The
*granule* is the limit of a container that names none, and the *reuse count* how many of them a promise holds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from convgpu.core.volume_options import OptionError
from convgpu.protocol.sizes import format_size, parse_size

MOST_THRESHOLD: Final = 16.0
_SHARE_OF_HOST: Final = 2  # at most one half of the host's memory is taken
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Oversubscription:
    """What may be promised of the devices of a host.

    Attributes:
        threshold: promise divided by capacity.
        granule: limit in bytes of a container that names none, 0 without one.
        capacity: of the devices, in bytes.
    """

    threshold: float
    granule: int
    capacity: Mapping[str, int]

    def reuse_count(self, device: str) -> int:
        """Return how many containers of the granule the device's promise holds; 0 without a granule."""
        return reuse_count(self.capacity[device], self.threshold, self.granule) if self.granule else 0


def plan(threshold: float, granule: str, capacity: Mapping[str, int], host: int | None) -> Oversubscription:
    """Return what the settings give on a host.

    Args:
        threshold: as the setting says.
        granule: as the setting says; empty without one.
        capacity: of the devices, in bytes.
        host: bytes of memory that the host has; None: the administrator has said how much may be taken of it, and what
            is not covered is not promised.

    Raises:
        OptionError: one of them makes no sense; the text names what would do.
    """
    if host is not None:
        check_host_memory(sum(capacity.values()), threshold, host)
    usable = [size for size in capacity.values() if size]
    size = parse_granule(granule, min(usable)) if granule and usable else 0
    return Oversubscription(threshold, size, dict(capacity))


def parse_threshold(text: str) -> float:
    """Return the multiple of a device's capacity that may be promised.

    Raises:
        OptionError: it is no number from 1 to 16.
    """
    try:
        threshold = float(text)
    except ValueError:
        threshold = math.nan
    if not 1.0 <= threshold <= MOST_THRESHOLD:
        raise OptionError(
            f"threshold {text!r}: give a number from 1 to {MOST_THRESHOLD:.0f}; 1.0 promises what the GPU has, "
            "2.0 twice as much"
        )
    return threshold


def promise(capacity: int, threshold: float) -> int:
    """Return the bytes that may be granted of a device."""
    return max(int(capacity * threshold), capacity)


def host_memory(capacity: int, threshold: float) -> int:
    """Return the bytes of host memory that a device's promise takes."""
    return promise(capacity, threshold) - capacity


def check_host_memory(capacity: int, threshold: float, host: int) -> None:
    """Refuse a threshold that takes more than half of the host's memory.

    Args:
        capacity: bytes of all devices.
        threshold: of all of them.
        host: bytes of memory that the host has.

    Raises:
        OptionError: it takes more; the text names the largest threshold that does not.
    """
    needed, available = host_memory(capacity, threshold), host // _SHARE_OF_HOST
    if needed > available:
        largest = math.floor((1 + available / capacity) * 100) / 100 if capacity else 1.0
        raise OptionError(
            f"threshold {threshold:g}: it takes {format_size(needed)} of the host, which has {format_size(host)}, and "
            f"at most half of that may be taken; the largest threshold that fits is {max(largest, 1.0):g}"
        )


def parse_granule(text: str, capacity: int) -> int:
    """Return the limit of a container that names none, in bytes.

    Args:
        text: a size.
        capacity: of the smallest device.

    Raises:
        OptionError: it is no size, nothing, or more than a device has; the text names one that fits.
    """
    try:
        granule = parse_size(text)
    except ValueError as error:
        raise OptionError(f"granule {text!r}: {error}") from error
    if granule < _MIB:
        raise OptionError(f"granule {text!r}: give at least 1m")
    if granule > capacity:
        raise OptionError(
            f"granule {text!r}: a GPU has {format_size(capacity)} to hand out; the largest granule that fits is "
            f"{capacity >> 20}m"
        )
    return granule


def reuse_count(capacity: int, threshold: float, granule: int) -> int:
    """Return how many containers of the granule a device's promise holds."""
    return promise(capacity, threshold) // granule


def check_reuse(device: str, present: int, count: int) -> None:
    """Refuse one more elastic container on a device that has as many as its reuse count; 0: it has none.

    Raises:
        OptionError: it has.
    """
    if count and present >= count:
        raise OptionError(
            f"{device} has {present} containers whose memory may leave, and its reuse count is {count}: wait until one "
            "ends, choose another GPU, or have the administrator lower CONVGPU_GRANULE or raise CONVGPU_OVERSUBSCRIBE"
        )
