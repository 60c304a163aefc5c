"""Removal of a folder that its owner can change meanwhile: nothing is followed, and nothing is waited for."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

# O_NONBLOCK: a FIFO in the place of a folder would make open(2) wait for its other end. shutil.rmtree has no such flag.
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_LEVELS: Final = 200  # descriptors that are open at once


def remove_tree(path: Path, parent: int | None = None) -> None:
    """Remove a folder with everything in it, as far as that is possible; a file or a link is removed as such.

    Args:
        path: of the folder.
        parent: descriptor of the folder in which `path` is a name; None: it is none.
    """
    _remove(str(path), parent, _MOST_LEVELS)


def _remove(name: str, parent: int | None, levels: int) -> None:
    """Remove an entry of the folder `parent`, whatever it is by now."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            os.unlink(name, dir_fd=parent)
            return
        if levels:
            folder = os.open(name, _FOLDER, dir_fd=parent)
            try:
                for entry in os.listdir(folder):  # noqa: PTH208 - a Path cannot name a descriptor
                    _remove(entry, folder, levels - 1)
            finally:
                os.close(folder)
        os.rmdir(name, dir_fd=parent)
