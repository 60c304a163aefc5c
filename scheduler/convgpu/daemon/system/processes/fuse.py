"""FUSE connections whose servers have not answered all requests (Documentation/filesystems/fuse)."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from convgpu.daemon.system.processes.cgroups import views


@dataclass(frozen=True, slots=True)
class Connection:
    """One with open requests. `number`: its folder's; `user`: who mounted it."""

    number: int
    user: int


def connections() -> list[Connection]:
    """Return those of the whole host; none where `/sys/fs/fuse/connections` is not mounted or cannot be read."""
    for root in views():
        folder = Path(f"{root}/sys/fs/fuse/connections")
        with suppress(OSError):
            if numbers := sorted(int(name) for name in os.listdir(folder)):  # noqa: PTH208 - only names are needed
                return [found for number in numbers if (found := _look(folder, number)) is not None]
    return []


def _look(folder: Path, number: int) -> Connection | None:
    with suppress(OSError):
        if int((folder / str(number) / "waiting").read_text()):
            return Connection(number, (folder / str(number)).stat().st_uid)
    return None
