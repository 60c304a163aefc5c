"""Mounts a container's folder from outside, while its runtime waits for us, before the container's program starts."""

import ctypes
import os
from pathlib import Path
from typing import Final

from convgpu.runtime.edits import MOUNT_PATH

_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096

_libc = ctypes.CDLL(None, use_errno=True)


def mount_folder(pid: int, root: str, folder: Path, *, read_only: bool) -> None:
    """Bind `folder` over the place at /run/convgpu of a container that is being made.

    Enters the container's mount namespace, which before pivot_root still has the host's tree, and the container's root
    in it, so that a link in the image leads nowhere else. This process is in both afterwards.

    Args:
        pid: of the container's first process.
        root: of the container, as the host names it.
        folder: on the host.
        read_only: a simulated driver writes beside itself, everything else has no reason to.

    Raises:
        OSError: it cannot be done.
    """
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(namespace, _CLONE_NEWNS), "setns")
    finally:
        os.close(namespace)
    os.chdir(folder)
    os.chroot(root)
    # The working directory lies outside the new root, and is the one way to what lies there.
    _mount(b".", _MS_BIND)
    flags = _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if read_only else 0)
    _mount(b"none", _MS_BIND | _MS_REMOUNT | flags)


def _mount(source: bytes, flags: int) -> None:
    _check(_libc.mount(source, MOUNT_PATH.encode(), None, ctypes.c_ulong(flags), None), f"mount at {MOUNT_PATH}")


def _check(result: int, call: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
