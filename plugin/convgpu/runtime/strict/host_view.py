"""Looks up on the host what strict rules are compared with at a start."""

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from convgpu.runtime.devices import GpuNumbers
from convgpu.runtime.paths import normal
from convgpu.runtime.strict.judgement import HostView, Numbers
from convgpu.runtime.strict.staging import mount_points

_CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/run/cdi"))
# Of JSON and of YAML.
_CDI_PATH: Final = re.compile(r"""\b(?:hostPath|path)["']?\s*:\s*["']?([^"'\s,]+)""")
# Those that a container can share with the host.
_KINDS: Final = ("ipc", "pid", "uts", "net")
_MAX_NODES: Final = 20_000  # of one folder


def look_at_host(engine_root: str, container: str) -> HostView:
    """Return the view of this host, for a container by the Engine's id."""
    return HostView(
        engine_root=os.path.realpath(engine_root),
        real_path=real_path,
        mounts_below=mounts_below,
        numbers_of=numbers_of,
        is_gpu=GpuNumbers().has,
        cdi_paths=frozenset(_cdi_paths()),
        is_hosts=is_hosts,
        made=made_by_engine(Path(engine_root, "containers", container, "config.v2.json")),
    )


def made_by_engine(record: Path) -> frozenset[str]:
    """Return where a container mounts what the Engine makes if it is missing, by the Engine's record of it."""
    try:
        points = json.loads(record.read_bytes()).get("MountPoints") or {}
    except FileNotFoundError:
        return frozenset()  # nobody's container whom we know
    binds = (point for point in points.values() if point.get("Type") == "bind")
    return frozenset(normal(str(each.get("Destination"))) for each in binds if not each.get("SkipMountpointCreation"))


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
    return [point for point in mount_points(table) if point.startswith(top) and point != top]


def is_hosts(namespace: str) -> bool:
    """Tell whether a file of a namespace is of the namespace in which this process runs."""
    try:
        found = os.stat(namespace)  # noqa: PTH116 - imported with each start
    except OSError:
        return False
    own = (os.stat(f"/proc/self/ns/{kind}") for kind in _KINDS)  # noqa: PTH116 - as above
    return (found.st_dev, found.st_ino) in {(each.st_dev, each.st_ino) for each in own}


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
