"""Takes from cgroups what delays the end of processes in them (cgroups(7); the kernel's cgroup-v1/, cgroup-v2.rst)."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PARENT: Final = re.compile(r"^PPid:\t([0-9]+)", re.MULTILINE)
# What a file is written with; "../NAME": with that file of the cgroup above. While a cgroup is idle it takes no weight.
_FREE: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "": (  # version 2, which refuses an empty list of CPUs (ENOSPC) while a process is there
        ("cpu.max", "max"),
        ("cpu.idle", "0"),
        ("cpu.weight", "10000"),
        ("cpuset.cpus", "../cpuset.cpus.effective"),
        ("cgroup.freeze", "0"),
    ),
    "cpu": (("cpu.cfs_quota_us", "-1"), ("cpu.idle", "0"), ("cpu.shares", "262144")),
    "cpuset": (("cpuset.cpus", "../cpuset.cpus"),),
    "freezer": (("freezer.state", "THAWED"),),
}
# Speeds of disks, a line for each: what a line is written with behind its disk.
_SPEEDS: Final = {
    "io.max": "rbps=max wbps=max riops=max wiops=max",
    **{f"blkio.throttle.{way}_{unit}_device": "0" for way in ("read", "write") for unit in ("bps", "iops")},
}


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """One of the host's; `controllers`: its own, "" is version 2; `top`: the cgroup at `point`."""

    controllers: frozenset[str]
    top: str
    point: Path


def free(tables: Iterable[str], container: str) -> None:
    """Free the cgroups of a container of limits on CPUs and disks, and thaw them. Errors are ignored: it may be gone.

    What a container has of CPUs and disks delays its end: the kernel frees its memory in its time (decision 180).

    Args:
        tables: `/proc/PID/cgroup` of processes in it, from before their end: version 1 forgets it then.
        container: the Engine's id, by which the folders to free are known: the container's own, and those below.
    """
    hierarchies = _hierarchies()
    folders = {found: None for table in sorted(set(tables)) for found in _folders(table, container, hierarchies)}
    for controllers, folder in folders:
        for controller in controllers & _FREE.keys():
            for name, text in _FREE[controller]:
                _write(folder / name, text)
        for name, text in _SPEEDS.items():
            for line in _read(folder / name).splitlines():
                _write(folder / name, f"{line.split()[0]} {text}")


def is_frozen(table: str) -> bool:
    """Say whether the cgroups in a `/proc/PID/cgroup` are frozen, as `docker pause` and others leave them."""
    hierarchies = _hierarchies()
    for line in filter(None, table.split("\n")):
        _, names, path = line.split(":", 2)
        for each in hierarchies:
            if {*names.split(",")} <= each.controllers and path.startswith(f"{each.top}/"):
                folder = each.point / path[len(each.top) + 1 :]
                if _read(folder / "freezer.state").strip() in {"FROZEN", "FREEZING"}:
                    return True
                if "frozen 1" in _read(folder / "cgroup.events"):
                    return True
    return False


def views() -> Iterator[str]:
    """Return root folders, of this process and those above it: a plugin's parent is a process of the Engine's."""
    pid = os.getpid()
    while pid:
        yield f"/proc/{pid}/root"
        above = _PARENT.search(_read(Path(f"/proc/{pid}/status")))
        pid = int(above[1]) if above else 0


def _hierarchies() -> tuple[_Hierarchy, ...]:
    """Return the hierarchies, as the first of our views shows them in which they can be written."""
    for root in views():
        found = tuple(_seen_in(root))
        if found and all(os.access(each.point, os.W_OK) for each in found):
            return found
    return ()


def _seen_in(root: str) -> Iterator[_Hierarchy]:
    for line in _read(Path(root).parent / "mountinfo").split("\n"):
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        if kind in {"cgroup", "cgroup2"}:
            top, point = fields.split(" ")[3:5]
            controllers = {""} if kind == "cgroup2" else {*options.split()[-1].split(",")} - {"rw"}
            yield _Hierarchy(frozenset(controllers), top.rstrip("/"), Path(root + point))


def _folders(table: str, container: str, hierarchies: Iterable[_Hierarchy]) -> Iterator[tuple[frozenset[str], Path]]:
    """Return the folders of a container on the way to a process, from above, with the controllers that are there."""
    for line in filter(None, table.split("\n")):
        _, names, path = line.split(":", 2)
        parts = path.split("/")
        first = next((place for place, part in enumerate(parts) if container in part), None)
        hierarchy = next((each for each in hierarchies if {*names.split(",")} <= each.controllers), None)
        if first is None or ".." in parts or hierarchy is None or not path.startswith(f"{hierarchy.top}/"):
            continue
        for end in range(first + 1, len(parts) + 1):
            yield hierarchy.controllers, hierarchy.point / "/".join(parts[:end])[len(hierarchy.top) + 1 :]


def _read(path: Path) -> str:
    """Return a file; names in it can be any bytes but a line feed, and be used as paths."""
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    with suppress(OSError):
        path.write_text((path.parent / text).read_text() if text.startswith("../") else text)
