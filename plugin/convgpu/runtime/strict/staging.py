"""Mounts what was opened where only this runtime sees it, so that the real runtime reads no name that users can change.

A namespace of mounts of our own holds them; the real runtime, which this process becomes, clones its container's from
it, and it ends with that process. Nothing is mounted in the host's.
"""

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from convgpu.runtime.strict.open_path import Opened
from convgpu.runtime.strict.own_ids import OwnIds, make_place

_CLONE_NEWNS: Final = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 32, 4096, 16384, 1 << 19
# statvfs(3) and mount(2) write these alike: read-only, nosuid, nodev, noexec, noatime, nodiratime.
_KEPT: Final = 1 | 2 | 4 | 8 | 1024 | 2048
_FOLDER: Final = "convgpu-mounts"
_MOUNT_POINT: Final = 4  # field of a row of mountinfo
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")

_libc = ctypes.CDLL(None, use_errno=True)


def enter_own_namespace() -> None:
    """Give this process a namespace of mounts that follows the host's, and of which the host sees nothing."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount("none", "/", _MS_REC | _MS_SLAVE)


def stage(
    bundle: Path, number: int, opened: Opened, *, recursive: bool, writes: bool, ids: OwnIds | None = None
) -> str:
    """Mount what was opened below the bundle, where only root comes to, and return the path.

    Args:
        bundle: of the container; it goes with it.
        number: of the mount in its configuration.
        opened: in the namespace of this process.
        recursive: with all that is mounted below.
        writes: then no setuid bit and no device node counts there, nor in what is mounted below.
        ids: of the container; None for the host's.

    Raises:
        OSError: a system call failed, or another object is mounted than was opened.
    """
    if ids is not None:
        place = Path(ids.bind(opened.link, number, recursive=recursive))
    else:
        place = bundle / _FOLDER / str(number)
        place.parent.mkdir(mode=0o711, exist_ok=True)
        make_place(place, is_folder=opened.is_folder)
        _mount(opened.link, str(place), _MS_BIND | (_MS_REC if recursive else 0))
    found = os.lstat(place)
    if (found.st_dev, found.st_ino) != opened.identity:
        raise OSError(f"{opened.path} is not what was mounted")
    for point in _mount_points(str(place)) if writes else ():
        kept = os.statvfs(point).f_flag & _KEPT
        _mount("none", point, _MS_BIND | _MS_REMOUNT | _MS_NOSUID | _MS_NODEV | kept)
    return str(place)


def mount_points(table: Path = Path("/proc/self/mountinfo")) -> Iterator[str]:
    """Return the mount points of this process's namespace."""
    points = (row.split()[_MOUNT_POINT] for row in table.read_text(errors="surrogateescape").splitlines())
    return (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), point) for point in points)


def _mount_points(top: str) -> list[str]:
    real = os.path.realpath(top)
    return [point for point in mount_points() if point == real or point.startswith(f"{real}/")]


def _mount(source: str, target: str, flags: int) -> None:
    result = _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None)
    _check(result, f"mount at {target}")


def _check(result: int, call: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
