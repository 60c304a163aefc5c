"""The user namespace of a container that starts, and what is mounted for it with its IDs."""

import ctypes
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from convgpu.runtime.strict.idmap import bind_mapped, mount_root, open_user_namespace, user_tables
from convgpu.runtime.strict.ranges import reserve
from convgpu.runtime.strict.user_ids import UserIds, choose_ids, first_free

# Only in the namespace of mounts of this process something lies there. The container's root comes to it by its IDs.
_STAGING: Final = Path("/run/convgpu/mounts")
_ROOT: Final = "root"

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class OwnIds:
    """A container's IDs, and the namespace by which mounts get them."""

    ids: UserIds
    namespace: int

    @classmethod
    def of(cls, config: dict[str, Any], joined: UserIds | None, *, writes: bool) -> "OwnIds":
        """Choose IDs for a container: those of the container whose namespaces it joins, or such as nobody has.

        Until its first process has them they are reserved. This process has a namespace of mounts of its own.

        Args:
            config: of the container.
            joined: the IDs of the container whose namespaces it joins, which are reserved.
            writes: whether it writes paths of the host.

        Raises:
            OSError: a system call failed.
            ValueError: no IDs are free.
        """
        # From this, empty on the host, the real runtime starts each `exec`.
        (_STAGING / _ROOT).mkdir(mode=0o711, parents=True, exist_ok=True)
        if _libc.mount(b"tmpfs", os.fsencode(_STAGING), b"tmpfs", ctypes.c_ulong(0), b"mode=0711,size=1m") != 0:
            raise OSError(ctypes.get_errno(), f"mount at {_STAGING}")
        chosen = joined or choose_ids(config, first_free(user_tables, _draw, reserve, writes=writes))
        return cls(chosen, open_user_namespace(chosen))

    def bind(self, source: str, number: int, *, recursive: bool) -> str:
        """Mount a folder or file with the IDs, and return the place."""
        place = _STAGING / str(number)
        make_place(place, is_folder=os.path.isdir(source))  # noqa: PTH112 - of each start
        bind_mapped(source, str(place), self.namespace, recursive=recursive)
        return str(place)

    def make_device(self, device: Mapping[str, Any], number: int) -> str:
        """Make a device node as its owner in the container would have it, and return the place.

        The real runtime would show the host's, which belongs to the host's root.
        """
        place = _STAGING / f"device-{number}"
        kind = stat.S_IFBLK if device.get("type") == "b" else stat.S_IFCHR
        mode = 0o666 if device.get("fileMode") is None else int(device["fileMode"]) & 0o777
        os.mknod(place, kind | mode, os.makedev(int(device.get("major") or 0), int(device.get("minor") or 0)))
        owners = (self.ids.kernel_id(int(device.get(name) or 0)) for name in ("uid", "gid"))
        os.chown(place, *owners)
        place.chmod(mode)
        return str(place)

    def mount_root(self, root: str) -> str | None:
        """Mount a root file system with the IDs, and return the place; None where it cannot have them."""
        place = _STAGING / _ROOT
        place.mkdir()
        return str(place) if mount_root(root, place, self.namespace, self.ids) else None


def make_place(place: Path, *, is_folder: bool) -> None:
    """Make what something is mounted on."""
    if is_folder:
        place.mkdir()
    else:
        place.touch()


def give_pipes(user: int) -> None:
    """Give a container's program its pipes, so that it can open /dev/stdout; the real runtime cannot."""
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.fchown(descriptor, user, -1)


def _draw(below: int) -> int:
    return int.from_bytes(os.urandom(8), "big") % below
