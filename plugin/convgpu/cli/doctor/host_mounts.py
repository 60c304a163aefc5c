"""Warns of containers that mount the host's /proc or /sys on an Engine that makes only the top read-only. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from convgpu.cli.terminal.findings import Finding
from convgpu.runtime.paths import touches

# From this Engine on, what is mounted below a read-only mount is read-only, too.
_RECURSIVE: Final = 25
_MAX_NAMES: Final = 3


def judge_mounts(version: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a warning if there is such a container.

    Args:
        version: of the Engine.
        rows: the Engine's list of containers.
    """
    found = re.match(r"\d+", version)
    if found is None or int(found[0]) >= _RECURSIVE:
        return
    names = [
        str((row.get("Names") or ["/?"])[0])[1:] for row in rows if any(map(_shows_kernel, row.get("Mounts") or ()))
    ]
    if names:
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        yield Finding(
            "mounts",
            "warn",
            f"{', '.join(names[:_MAX_NAMES])}{more} can write cgroups below the host's /proc or /sys, and by them open "
            "any device",
            "An Engine before 25 makes such a mount read-only at its top only: use Engine 25, or leave the mount out.",
        )


def _shows_kernel(mount: Mapping[str, Any]) -> bool:
    return mount.get("Type") == "bind" and touches(str(mount.get("Source")), ("/proc", "/sys")) is not None
