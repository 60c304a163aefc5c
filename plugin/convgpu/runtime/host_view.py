"""Looks up on the host what strict rules are compared with at a start."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from convgpu.runtime.devices import GpuNumbers
from convgpu.runtime.strict_start import HostView, Numbers

_CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/run/cdi"))
# Of JSON and of YAML.
_CDI_PATH: Final = re.compile(r"""\b(?:hostPath|path)["']?\s*:\s*["']?([^"'\s,]+)""")
_MOUNT_POINT: Final = 4  # field of a row of mountinfo
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_MAX_NODES: Final = 20_000  # of one folder


def look_at_host(engine_root: str) -> HostView:
    """Return the view of this host."""
    return HostView(
        engine_root=os.path.realpath(engine_root),
        real_path=real_path,
        mounts_below=mounts_below,
        numbers_of=numbers_of,
        is_gpu=GpuNumbers().has,
        cdi_paths=frozenset(_cdi_paths()),
    )


def real_path(path: str) -> str | None:
    """Return the kernel's name of what a path leads to now, by opening it; None if it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - its text, not a Path
    finally:
        os.close(descriptor)


def mounts_below(path: str, table: Path = Path("/proc/self/mountinfo")) -> list[str]:
    """Return the mount points below a folder."""
    top = path.rstrip("/") + "/"
    points = (row.split()[_MOUNT_POINT] for row in table.read_text(errors="surrogateescape").splitlines())
    plain = (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), point) for point in points)
    return [point for point in plain if point.startswith(top) and point != top]


def numbers_of(path: str) -> Numbers:
    """Return the numbers of the device nodes at or below a path; a link leads nowhere."""
    names = [path]
    for top, _, files in os.walk(path):
        names += (f"{top}/{name}" for name in files)
        if len(names) > _MAX_NODES:
            break
    return frozenset(pair for name in names for pair in _numbers(name))


def _numbers(path: str) -> Iterator[tuple[int, int]]:
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        yield os.major(status.st_rdev), os.minor(status.st_rdev)


def _cdi_paths() -> Iterator[str]:
    for file in (file for folder in _CDI_FOLDERS if folder.is_dir() for file in sorted(folder.iterdir())):
        try:
            yield from _CDI_PATH.findall(file.read_text())
        except (OSError, UnicodeDecodeError):
            continue
