"""Which folders processes have mounted, by the kernel's own list (proc(5), /proc/PID/mountinfo)."""

import re
from pathlib import Path
from typing import Final, NamedTuple

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Place(NamedTuple):
    """A folder by its file system: the device (`8:1`), and its path from that file system's root."""

    device: bytes
    path: bytes


class Mount(NamedTuple):
    """What is mounted, and where."""

    place: Place
    point: bytes


def mounts_of(pid: int | str) -> list[Mount]:
    """Return what is mounted for a process below its root, oldest first; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/mountinfo").read_bytes()
    except OSError:
        return []
    return [parse_mount(line) for line in text.split(b"\n") if line]  # \r is no end of one


def parse_mount(line: bytes) -> Mount:
    """Return one line of mountinfo; spaces and the like are octal numbers in it."""
    fields = line.split(b" ", 5)
    path, point = (_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field) for field in fields[3:5])
    return Mount(Place(fields[2], path), point)


def locate(folder: bytes, mounts: list[Mount]) -> Place | None:
    """Return where a folder without links in its path lies: of mounts at one point the newest covers the others."""
    holders = [mount for mount in mounts if _is_below(folder, mount.point)]
    if not holders:
        return None
    longest = max(len(mount.point) for mount in holders)
    place, point = next(mount for mount in reversed(holders) if len(mount.point) == longest)
    return Place(place.device, join(place.path, folder[len(point.rstrip(b"/")) :].lstrip(b"/")))


def join(path: bytes, name: bytes) -> bytes:
    """Return the path of an entry of a folder."""
    return path.rstrip(b"/") + b"/" + name if name else path


def _is_below(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")
