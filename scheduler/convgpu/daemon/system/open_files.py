"""Which files processes have open, without waiting for who serves them (statx(2), proc(5))."""

import ctypes
import os
import struct
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from convgpu.daemon.system.processes.bounded_looks import BoundedLooks
from convgpu.daemon.system.procfs import is_alive, is_running, pid_namespace

_AT_FDCWD: Final = -100
# Whoever serves the file (FUSE, a server in the network) is not asked: a container could keep us waiting for ever.
_DONT_SYNC: Final = 0x4000
_TYPE_AND_NODE: Final = 0x101  # STATX_TYPE | STATX_INO
_CHARACTER_DEVICE: Final = 0x2000
_FORMAT: Final = struct.Struct("<28xHxx Q 88x 4I 112x")  # include/uapi/linux/stat.h, struct statx

# Descriptors, and mappings, of one process at which one look looks; 17 us each.
_MOST: Final = 1000

_libc: Final = ctypes.CDLL(None)
_looks: Final = BoundedLooks()

# The numbers of a character device, or those of the device that a file lies on and its inode.
FileIdentity = tuple[int, int, int | None]


def identify(path: str) -> FileIdentity | None:
    """Return what file is open or lies at a path, None if that cannot be told. Its name proves nothing."""
    answer = ctypes.create_string_buffer(_FORMAT.size)
    if _libc.statx(_AT_FDCWD, path.encode(), _DONT_SYNC, _TYPE_AND_NODE, answer) != 0:
        return None
    mode, node, device_major, device_minor, major, minor = _FORMAT.unpack(answer.raw)
    if mode & 0xF000 == _CHARACTER_DEVICE:
        return device_major, device_minor, None
    return major, minor, node


def holders(pids: Iterable[int], files: Collection[FileIdentity]) -> Iterator[tuple[int, str] | None]:
    """Look at the open descriptors of processes, one with each step; yield the pid and the number of each such file."""
    for pid in pids:
        if pid_namespace(pid) is None:  # it has ended, or keeps who looks at its descriptors waiting
            continue
        try:
            with os.scandir(f"/proc/{pid}/fd") as descriptors:  # read as it is walked: there may be a million
                for row in descriptors:
                    yield (pid, row.name) if identify(row.path) in files else None
        except OSError:
            continue  # it has ended


def has_open(pid: int, file: FileIdentity) -> bool | None:
    """Say whether a process has a file open or mapped; of a device, any of its kind (major number).

    None if that cannot be told, or not in time (see `bounded_looks`), or if it has more than a thousand of either. Its
    first thread's descriptors count; once that has ended it shows none, and nobody can tell.
    """
    found = _looks.ask(pid, lambda: _has_open(pid, file))
    return None if found is False and not is_running(pid) and is_alive(pid) else found


def _has_open(pid: int, file: FileIdentity) -> bool | None:
    """Return None if it cannot be told."""
    for folder in ("fd", "map_files"):
        try:
            with os.scandir(f"/proc/{pid}/{folder}") as rows:
                for count, row in enumerate(rows):
                    found = identify(row.path)
                    if found is not None and _is_kind(found, file):
                        return True
                    if count >= _MOST or found is None:
                        return None
        except PermissionError:
            return None
        except OSError:  # it has ended
            return False
    return False


def _is_kind(found: FileIdentity, file: FileIdentity) -> bool:
    return found == file or (found[2] is None is file[2] and found[0] == file[0])


def is_from_elsewhere(pid: int, descriptor: str) -> bool:
    """Say whether a process was given a descriptor by one that sees other mounts, as those of another container."""
    try:
        told = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().split()
        opened = told[told.index("mnt_id:") + 1].encode()
        mounts = Path(f"/proc/{pid}/mountinfo").read_bytes().split(b"\n")
    except (OSError, ValueError):  # it has ended
        return False
    return opened not in {mount.partition(b" ")[0] for mount in mounts}
