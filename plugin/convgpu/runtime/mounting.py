"""Mounts a container's folder from outside, in a hook that runs before the container's program starts."""

import ctypes
import os
from pathlib import Path
from typing import Final

from convgpu.protocol.layout import MOUNT_PATH

_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096

_libc = ctypes.CDLL(None, use_errno=True)


def mount_folder(pid: int, root: str, folder: Path, *, read_only: bool) -> None:
    """Bind `folder` over the mount point /run/convgpu of a container that is being created.

    Enters the container's mount namespace, which before pivot_root still has the host's tree, and the container's root
    in it, so that a symbolic link in the image cannot lead outside. This process stays in both.

    Args:
        pid: of the container's first process.
        root: of the container, as the host names it.
        folder: on the host.
        read_only: False for a simulated driver, which writes into its own folder.

    Raises:
        OSError: a system call failed.
    """
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(namespace, _CLONE_NEWNS), "setns")
    finally:
        os.close(namespace)
    os.chdir(folder)
    os.chroot(root)
    # The working directory lies outside the new root; nothing else out there can be reached any more.
    _mount(b".", _MS_BIND)
    flags = _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if read_only else 0)
    _mount(b"none", _MS_BIND | _MS_REMOUNT | flags)


def _mount(source: bytes, flags: int) -> None:
    _check(_libc.mount(source, MOUNT_PATH.encode(), None, ctypes.c_ulong(flags), None), f"mount at {MOUNT_PATH}")


def _check(result: int, call: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
