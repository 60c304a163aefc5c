"""Where tests put folders with sockets and disks of their own: short, and in memory where there is enough of it."""

import functools
import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 8 << 30  # bytes: five Engines of 0.5 GiB, and what the tests write, are far less


@functools.cache
def short_parent() -> Path:
    """Return /dev/shm, where nobody waits for a disk, if it is large enough and memory for it is free; else /tmp.

    No test is about a power failure: what a disk would have lost is written into files by the tests of it.
    """
    try:
        status = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return Path("/tmp")
    figures = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    room = min(status.f_bavail * status.f_frsize, figures.get("MemAvailable", 0))
    return MEMORY if room >= ENOUGH and os.access(MEMORY, os.W_OK) else Path("/tmp")


def short_folder(prefix: str) -> Path:
    """Make a folder. Its path is short, because the path of a UNIX socket has at most 107 characters."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=short_parent()))
