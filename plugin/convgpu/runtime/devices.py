"""The numbers of GPUs' character devices, as the kernel of this host lists them."""

import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

# Documentation/admin-guide/devices.txt: 195 is NVIDIA's; 226 is DRM's, for the cards of every vendor.
NVIDIA_MAJOR: Final = 195
_DRM_MAJOR: Final = 226
_NVIDIA_VENDOR: Final = "0x10de"


class Source(NamedTuple):
    """The source of a mount: its path, and the numbers of a character device."""

    path: str
    numbers: tuple[int, int] | None = None


def open_source(path: str) -> Source:
    """Return what the kernel finds at a path, by opening it and not by its text; nothing is used or waited for.

    What cannot be opened is as its text says: the runtime that comes after us cannot mount it either.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return Source(path)
    try:
        status = os.fstat(descriptor)
        real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - its text, not a Path
    finally:
        os.close(descriptor)
    numbers = (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None
    return Source(real, numbers)


class GpuNumbers:
    """Recognizes GPUs by the numbers of their device nodes, whatever names those have.

    Args:
        sysfs: of the host's kernel.
        devices: `/proc/devices`.
    """

    def __init__(self, sysfs: Path = Path("/sys"), devices: Path = Path("/proc/devices")) -> None:
        self._sysfs = sysfs
        self._devices = devices

    def has(self, major: int, minor: int | None = None) -> bool:
        """Tell whether a pair of numbers, or any minor of a major number, belongs to a GPU."""
        if major == NVIDIA_MAJOR:
            return True
        if major == _DRM_MAJOR:
            vendors = "class/drm/*/device/vendor" if minor is None else f"dev/char/{major}:{minor}/device/vendor"
            return any(map(_is_nvidia, self._sysfs.glob(vendors)))
        return major in self._driver_majors()

    def at_once(self) -> Callable[[int, int], bool]:
        """Return `has` for many pairs of numbers at this moment: what it has to read it reads once."""
        majors, minors = cache(self._driver_majors), cache(self._nvidia_minors)

        def has(major: int, minor: int) -> bool:
            return major == NVIDIA_MAJOR or (minor in minors() if major == _DRM_MAJOR else major in majors())

        return has

    def _nvidia_minors(self) -> set[int]:
        """Return the minors of DRM's devices that are NVIDIA's."""
        vendors = self._sysfs.glob(f"dev/char/{_DRM_MAJOR}:*/device/vendor")
        return {int(vendor.parts[-3].partition(":")[2]) for vendor in vendors if _is_nvidia(vendor)}

    def _driver_majors(self) -> set[int]:
        """Return the majors of the driver's other devices, from the lines `NUMBER NAME`."""
        try:
            rows = [row.split() for row in self._devices.read_text().splitlines()]
        except OSError:
            return set()
        return {int(row[0]) for row in rows if len(row) == 2 and row[0].isdecimal() and row[1].startswith("nvidia")}


def _is_nvidia(vendor: Path) -> bool:
    try:
        return vendor.read_text().strip() == _NVIDIA_VENDOR
    except OSError:
        return False
