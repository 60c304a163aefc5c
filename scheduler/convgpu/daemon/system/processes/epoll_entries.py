"""Epoll instances of other processes, and whether an entry is there.

An instance knows a file until the last descriptor of it is closed, wherever that is, and does not keep it open itself
(epoll(7), questions and answers). A list of what it knows (fdinfo) may have millions of entries, so it is never read:
kcmp(2) tells of one, by the number under which the file was entered, and takes no memory for it.
"""

import ctypes
import errno
import os
import platform
import struct
from pathlib import Path
from typing import Final

_PIDFD_GETFD: Final = 438
_KCMP: Final = 272 if platform.machine() == "aarch64" else 312
_KCMP_EPOLL_TFD: Final = 7
_INSTANCE: Final = "anon_inode:[eventpoll]"

_libc: Final = ctypes.CDLL(None, use_errno=True)


def copy_instance(pid: int, process: int, number: int) -> int:
    """Return a copy of a process's epoll instance.

    May never return: the process may be in the way, or have put another file there, whose close may take for ever.

    Args:
        pid: of the process.
        process: its pidfd.
        number: the process's descriptor.

    Raises:
        OSError: there is none.
    """
    if str(Path(f"/proc/{pid}/fd/{number}").readlink()) != _INSTANCE:
        raise OSError(errno.EINVAL, f"descriptor {number} of process {pid} is no epoll instance")
    copy = int(_libc.syscall(_PIDFD_GETFD, process, number, 0))
    if copy < 0:
        raise OSError(ctypes.get_errno(), f"descriptor {number} of process {pid} cannot be copied")
    if str(Path(f"/proc/self/fd/{copy}").readlink()) != _INSTANCE:  # it was exchanged
        os.close(copy)
        raise OSError(errno.EINVAL, f"descriptor {number} of process {pid} is no epoll instance")
    return copy


def has_entry(instance: int, number: int) -> bool:
    """Say whether an instance knows a file by that number; also where the kernel does not tell."""
    entry = ctypes.create_string_buffer(struct.pack("=III", instance, number, 0))
    own, address = os.getpid(), ctypes.c_ulong(ctypes.addressof(entry))
    return _libc.syscall(_KCMP, own, own, _KCMP_EPOLL_TFD, instance, address) >= 0 or ctypes.get_errno() != errno.ENOENT
