"""What demonstrations that were killed have left: containers with their volumes, and folders of schedulers.

A volume whose driver is gone holds up each start of the Engine for 15 s, which looks for the driver.
"""

import contextlib
import fcntl
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.requests_http import RequestsHttp

LABEL: Final = "convgpu.demo"
OWN_PLUGIN: Final = "convgpu-demo"  # of `make demo`: nobody else has volumes of it
FOLDER_PREFIX: Final = "convgpu-demo-"
_NAME: Final = re.compile(r"/convgpu-demo-\d+-[a-z]")
_AGE: Final = 300.0  # seconds; a demonstration takes at most one minute, and some to begin
_START: Final = 19  # of the words behind the name in /proc/PID/stat: when the process began


def owner() -> str:
    """Return what names this process: no other one on any host, before or after, has the same."""
    return f"{_host()}/{os.getpid()}/{_start(os.getpid())}"


def is_left(owned_by: str | None, age: float) -> bool:
    """Tell whether what a demonstration has made was left behind.

    Args:
        owned_by: the `owner` that made it; None: one of an earlier version.
        age: in seconds.
    """
    host, _, process = (owned_by or "").partition("/")
    if host != _host():
        return age > _AGE
    pid, _, start = process.partition("/")
    return not pid.isdecimal() or start != _start(int(pid))


def remove_from_engine(engine: Engine) -> list[str]:
    """Remove containers of killed demonstrations, and volumes of the demonstration's own plugin that nobody has.

    Returns:
        The names of what is gone.

    Raises:
        Unavailable: no Engine answers.
    """
    left = [row for row in engine.get("/containers/json", all=1) if _is_left_container(row)]
    engine.remove_containers([row["Id"] for row in left])
    unused = engine.get("/volumes", filters={"dangling": ["true"]}).get("Volumes") or ()
    volumes = [row["Name"] for row in unused if str(row.get("Driver")).removesuffix(":latest") == OWN_PLUGIN]
    names = [(row["Names"] or [row["Id"]])[0].lstrip("/") for row in left]
    return names + [name for name in volumes if engine.remove_volume(name)]


def remove_folders() -> list[str]:
    """Remove the folders of schedulers of killed demonstrations; return them."""
    gone = []
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid() and not _is_in_use(folder):
                shutil.rmtree(folder)
                gone.append(str(folder))
    return gone


def _is_left_container(row: dict[str, Any]) -> bool:
    labelled = (row.get("Labels") or {}).get(LABEL)
    if labelled is None and not any(_NAME.fullmatch(name) for name in row["Names"] or ()):
        return False
    return is_left(labelled, time.time() - row["Created"])


def _is_in_use(folder: Path) -> bool:
    """Tell whether a scheduler works in the folder, or may be about to."""
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime < _AGE
    except OSError:
        return True
    return False


def _host() -> str:
    """Return what names the start of this host, and the numbering of its processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}.{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"  # noqa: PTH115 - no path


def _start(pid: int) -> str | None:
    """Return when a process began, in ticks; None if there is none, or it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in {"Z", "X"} else words[_START]


if __name__ == "__main__":  # for scripts/demo, before it replaces the plugin
    for name in remove_from_engine(Engine.connect(RequestsHttp)):
        sys.stderr.write(f"    removed: {name}\n")
