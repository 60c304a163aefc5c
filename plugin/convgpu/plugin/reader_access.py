"""Who may read without root: the group, and its socket beside the Engine's."""

import logging
import os
from pathlib import Path
from typing import Final

from convgpu.plugin.settings import Settings

_log: Final = logging.getLogger(__name__)

_GROUPS: Final = (Path("/host/etc/group"), Path("/etc/group"))


def find_group(settings: Settings) -> int | None:
    """Return the number of the group that may read; None for nobody.

    Raises:
        ValueError: there is no such group.
    """
    text = settings.readers
    if text == "none":
        return None
    if text == "auto":
        try:
            return settings.engine.stat().st_gid or None
        except OSError:
            return None  # no Engine here, so there is nobody who may use it
    if text.isascii() and text.isdecimal():
        return int(text)
    for file in _GROUPS:
        if file.exists():
            rows = (line.split(":") for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
            numbers = [row[2] for row in rows if len(row) > 2 and row[0] == text and row[2].isdecimal()]
            if numbers:
                return int(numbers[0])
    raise ValueError(f"CONVGPU_READERS={text}: the host has no such group; give auto, none, a name or a number")


def prepare(settings: Settings) -> bool:
    """Make the folder of the socket, and say whether there are readers to be served."""
    try:
        if find_group(settings) is None:
            return False
        folder = settings.reader_socket.parent
        folder.mkdir(mode=0o755, exist_ok=True)
        folder.chmod(folder.stat().st_mode | 0o111)  # others may have made it for themselves
        settings.reader_socket.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        _log.warning("only root can read: %s", error)
        return False
    return True


def open_to_group(settings: Settings) -> None:
    """Let the group use the socket, which until now only root could."""
    group = find_group(settings)
    if group is not None:
        os.chown(settings.reader_socket, 0, group)
        settings.reader_socket.chmod(0o660)
