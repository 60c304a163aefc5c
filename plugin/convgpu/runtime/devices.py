"""The numbers of GPUs' character devices, as the kernel of this host lists them."""

from pathlib import Path
from typing import Final

# Documentation/admin-guide/devices.txt: 195 is NVIDIA's; 226 is DRM's, for the cards of every vendor.
NVIDIA_MAJOR: Final = 195
_DRM_MAJOR: Final = 226
_NVIDIA_VENDOR: Final = "0x10de"


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
