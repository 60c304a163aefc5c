"""A read-only bind mount of the containers' folders, from which containers get them whatever their users ask for.

The scheduler writes into `containers/`; Docker mounts folders of the read-only mount. So neither a container nor
`docker cp` can replace the library. A socket in a read-only mount can still be connected to.

There is one mount for all containers. It is made under the propagated mount, so the host has it too, also after the
plugin was killed.
"""

import ctypes
import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from convgpu.protocol.folder_names import folder_of

_log: Final = logging.getLogger(__name__)

# mount(2)
_MS_RDONLY: Final = 1
_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2

_libc: Final = ctypes.CDLL(None, use_errno=True)


class ReadOnlyMount:
    """The read-only mount of one folder; may be shared between threads.

    Args:
        folder: in which the scheduler makes the containers' folders.
        target: where they are mounted read-only; None: containers get the folders themselves.
    """

    def __init__(self, folder: Path, target: Path | None) -> None:
        self._folder = folder
        self._target = target

    def folder(self, volume: str) -> Path | None:
        """Return the folder of a volume, as the scheduler has it; None if there is none."""
        folder = self._folder / folder_of(volume)
        return folder if folder.is_dir() else None

    def path(self, mountpoint: str) -> str:
        """Return the folder that Docker mounts for `mountpoint`, which is a folder in `folder`."""
        if self._target is None:
            return mountpoint
        return str(self._target / Path(mountpoint).relative_to(self._folder))

    def prepare(self) -> None:
        """Make the mount, unless it is there.

        Raises:
            OSError: it cannot be made, and no container may get a folder that it could write.
        """
        if self._target is None or is_read_only(self._target):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._target.mkdir(exist_ok=True)
        with _locked(self._folder):  # an Engine that starts has several containers mount theirs at once
            if not is_read_only(self._target):
                self._make(str(self._target))

    def _make(self, target: str) -> None:
        """Make the mount elsewhere first: one that becomes read-only when it was propagated stays writable on the host.

        It is private there. A peer of the folder's own mount would, with another mount on top of it, have that
        propagated over the folder: then the scheduler could write there no more.
        """
        elsewhere = tempfile.mkdtemp()
        try:
            _mount(str(self._folder), elsewhere, _MS_BIND)
            try:
                _mount(None, elsewhere, _MS_PRIVATE)
                _mount(None, elsewhere, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
                _mount(elsewhere, target, _MS_BIND)
            finally:
                _check(_libc.umount2(elsewhere.encode(), _MNT_DETACH), elsewhere)
        finally:
            os.rmdir(elsewhere)  # noqa: PTH106 - and never what is in it
        _log.info("containers get %s read-only, as %s", self._folder, target)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which threads and processes wait for."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_read_only(folder: Path) -> bool:
    """Tell whether a folder exists on a read-only file system."""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except FileNotFoundError:
        return False


def _mount(source: str | None, target: str, flags: int) -> None:
    encoded = None if source is None else source.encode()
    _check(_libc.mount(encoded, target.encode(), None, ctypes.c_ulong(flags), None), target)


def _check(result: int, path: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
