"""Reserves a range of user IDs while a container starts: until its first process has them, no table shows them."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

# Of root alone. The kernel takes a lock back whatever dies; names in no file system could be taken by users.
_FOLDER: Final = Path("/run/convgpu/ids")


def reserve(first: int, folder: Path = _FOLDER) -> int | None:
    """Reserve the range that begins at an ID, until this process and the real runtime that it becomes end.

    Returns:
        a descriptor that holds it; None if a container starts with it, or one that joins who has it.

    Raises:
        OSError: the folder cannot be written.
    """
    return _lock(first, folder, fcntl.LOCK_EX)


def share(first: int, folder: Path = _FOLDER) -> int | None:
    """Keep others from drawing a range, beside others that do: who joins a container has its IDs.

    Raises:
        OSError: the folder cannot be written.
    """
    return _lock(first, folder, fcntl.LOCK_SH)


def _lock(first: int, folder: Path, kind: int) -> int | None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / str(first), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        os.set_inheritable(descriptor, True)
        return descriptor
    os.close(descriptor)
    return None
