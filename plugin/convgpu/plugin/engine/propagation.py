"""Whether what the plugin mounts under its propagated mount reaches the Engine.

An Engine that was killed ends the plugin of before when it starts again, and starts it anew. It removes the mounts of
the process that has ended while it starts the next one (moby, `plugin/manager.go`, `HandleExitEvent`), and at times
takes the propagated mount of the new process too. Then containers do not find the folders that the plugin mounts
read-only for them, until the plugin is started once more.
"""

import logging
import os
import time
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

_MARKER: Final = "cut-off"
# Seconds. The Engine disables a plugin that ends again while it restarts it: so we ask for one restart, not for two.
_PAUSE: Final = 60.0


def needs_restart(directory: Path, now: float | None = None) -> bool:
    """Return whether the plugin has to end, so that the Engine starts it with mounts that reach it.

    Args:
        directory: the propagated mount, as the plugin has it.
        now: Unix seconds.
    """
    try:
        own = Path("/proc/self/mountinfo").read_text()
        engine = Path(f"/proc/{os.getppid()}/mountinfo").read_text()
    except OSError as error:
        _log.debug("whether mounts reach the Engine is not known: %s", error)
        return False
    return is_cut_off(directory, own, engine) and _marks(directory / _MARKER, time.time() if now is None else now)


def is_cut_off(path: Path, own: str, engine: str) -> bool:
    """Return whether a shared mount has no peer in the Engine's mount namespace.

    Args:
        path: where it is mounted in our namespace.
        own: /proc/PID/mountinfo of a process in our namespace (proc(5)).
        engine: the same of one in the Engine's: the runtime's shim, our parent.
    """
    groups = [peers for place, peers in _mounts(own) if place == str(path)]
    return bool(groups) and bool(groups[-1]) and not any(groups[-1] & peers for _, peers in _mounts(engine))


def _mounts(info: str) -> list[tuple[str, frozenset[str]]]:
    """Return mount point and peer groups of each line; the optional fields end with a hyphen."""
    rows = [line.partition(" - ")[0].split() for line in info.splitlines()]
    return [(row[4], frozenset(field for field in row[6:] if field.startswith("shared:"))) for row in rows]


def _marks(marker: Path, now: float) -> bool:
    """Return whether no restart was asked for lately, and note that one is asked for now."""
    try:
        if marker.exists() and abs(now - marker.stat().st_mtime) < _PAUSE:
            _log.error("mounts still do not reach the Engine: containers will not find their folders")
            return False
        marker.touch()
        os.utime(marker, (now, now))
    except OSError as error:
        _log.error("mounts do not reach the Engine, and %s cannot be written: %s", marker, error)
        return False
    _log.error("the Engine has removed the mount of the plugin: it ends, and the Engine starts it again")
    return True
