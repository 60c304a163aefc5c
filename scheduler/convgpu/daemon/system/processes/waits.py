"""What a process waits for, as far as the kernel tells without keeping who asks waiting."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convgpu.daemon.system.processes.bounded_looks import BoundedLooks
from convgpu.daemon.system.processes.cgroups import is_frozen as is_frozen_in

_FIELDS: Final = re.compile(r"^(State|TracerPid):\t(\w+)", re.MULTILINE)
_MOST_THREADS: Final = 20
_looks: Final = BoundedLooks()


@dataclass(frozen=True, slots=True)
class Wait:
    """Of the thread that waits deepest: its state (proc(5)), the kernel's function, and the pid of its tracer or 0.

    `is_frozen`: its cgroup is.
    """

    pid: int
    state: str = ""
    place: str = ""
    tracer: int = 0
    is_frozen: bool = False


def wait_of(pid: int) -> Wait:
    """Return what a process waits for; fields are empty if it has ended, or nobody can tell in time."""
    waits = [_wait(pid, thread) for thread in _threads(pid)]
    return min(waits, key=lambda wait: "DTtRS".find(wait.state) % 9, default=Wait(pid))


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")[:_MOST_THREADS]  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def _wait(pid: int, thread: str) -> Wait:
    folder = Path(f"/proc/{pid}/task/{thread}")
    fields = dict(_FIELDS.findall(_read(folder / "status")))
    place = _looks.ask(pid, lambda: _read(folder / "wchan")) or ""
    tracer, is_frozen = int(fields.get("TracerPid", "0")), is_frozen_in(_read(folder / "cgroup"))
    return Wait(pid, fields.get("State", ""), "" if place == "0" else place, tracer, is_frozen)


def _read(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return ""
