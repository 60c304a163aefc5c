"""Files for containers, put in place atomically in folders that the container itself can write.

The daemon is root and the container's root owns the folder: whatever stands at a name there may be a link, a pipe or
a folder. So files are made in a staging folder that no container sees and renamed over the name, which follows
nothing; and what is read there is only compared with what it should be.
"""

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Final

from convgpu.daemon.system.remove_tree import remove_tree

_MAX_SIZE: Final = 64 << 20  # bytes of a file that are worth reading: ours are far smaller


def put_in_place(fresh: Path, target: Path) -> None:
    """Rename `fresh` to `target`, in place of whatever stands there. A program that has the old file keeps it.

    Raises:
        OSError: it cannot be done.
    """
    try:
        fresh.replace(target)
    except (IsADirectoryError, NotADirectoryError, FileExistsError):
        _remove(target)
        fresh.replace(target)


def deliver(source: Path | bytes, target: Path, mode: int, staging: Path) -> None:
    """Make `target` a copy of a file, or a file of these bytes.

    Raises:
        OSError: it cannot be read or written.
    """
    fresh = staging / target.name
    fresh.unlink(missing_ok=True)
    if isinstance(source, bytes):
        fresh.write_bytes(source)
    else:
        shutil.copyfile(source, fresh)
    fresh.chmod(mode)
    put_in_place(fresh, target)


def is_delivered(path: Path, digest: bytes, mode: int) -> bool:
    """Tell whether a regular file of root's with this SHA-256 and mode is there; nothing is followed or waited for.

    What is no regular file is not even opened: a device would be used by that.
    """
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(place)
        if (status.st_mode, status.st_uid) != (stat.S_IFREG | mode, os.geteuid()) or status.st_size > _MAX_SIZE:
            return False
        # The same file, whatever its name leads to by now; without O_NONBLOCK a lease could make us wait.
        descriptor = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest() == digest
    except OSError:
        return False
    finally:
        os.close(place)


def link_files(files: list[Path], folder: Path, staging: Path) -> None:
    """Make `folder` a folder with hard links to these files, and nothing else in it that is in their way.

    A program that opens one of them meanwhile finds the old or the new one.

    Raises:
        OSError: it cannot be done.
    """
    if folder.is_symlink() or not folder.is_dir():
        _remove(folder)
        folder.mkdir()
    # Through a descriptor: the name could be another folder by now.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for file in files:
            if _is_link_to(file, descriptor):
                continue
            fresh = staging / f"link-{file.name}"
            fresh.unlink(missing_ok=True)
            fresh.hardlink_to(file)
            try:
                os.rename(fresh, file.name, dst_dir_fd=descriptor)
            except IsADirectoryError:
                remove_tree(Path(file.name), descriptor)
                os.rename(fresh, file.name, dst_dir_fd=descriptor)
            fresh.unlink(missing_ok=True)  # rename does nothing when both are the same file already
    finally:
        os.close(descriptor)


def _is_link_to(file: Path, folder: int) -> bool:
    try:
        return os.path.samestat(os.stat(file.name, dir_fd=folder, follow_symlinks=False), file.stat())
    except OSError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
