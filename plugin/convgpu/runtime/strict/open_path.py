"""Opens a path of the host name by name and through no link, so that what is judged is what is mounted."""

import os
import stat
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opened:
    """A folder or file of the host, held by a descriptor that opens nothing (`O_PATH`).

    Attributes:
        path: by which it was opened.
        descriptor: this process's; whoever swaps names afterwards changes nothing of it.
    """

    path: str
    descriptor: int

    @property
    def link(self) -> str:
        """The name by which the kernel finds it again."""
        return f"/proc/self/fd/{self.descriptor}"

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(os.fstat(self.descriptor).st_mode)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        found = os.fstat(self.descriptor)
        return found.st_dev, found.st_ino


def open_path(path: str) -> Opened:
    """Open an absolute path as openat2 does with RESOLVE_NO_SYMLINKS.

    Raises:
        OSError: it is not there, or a name on its way, or itself, is a link.
    """
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in (part for part in path.split("/") if part):
        try:
            # Without O_DIRECTORY a link is opened itself, and the next name is not found in it (ENOTDIR).
            deeper = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = deeper
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotADirectoryError(f"{path} is a link")
    return Opened(path, descriptor)
