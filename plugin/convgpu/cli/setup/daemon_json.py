"""`daemon.json`, the Engine's settings: read, changed in one key, written so that nothing is lost."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from convgpu.cli.terminal.errors import Refused, Unavailable

KEY: Final = "authorization-plugins"
_BACKUP: Final = ".before-convgpu"


def read(path: Path) -> dict[str, Any]:
    """Return the settings; an absent or empty file has none.

    Raises:
        Refused: it is no JSON object; the Engine would not start with it.
        Unavailable: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error}.\nRun this as root: sudo convgpu authz ...") from error
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise Refused(f"{path} is not JSON: {error}.\nMend it first; the Engine would not start with it.") from error
    if not isinstance(settings, dict):
        raise Refused(f"{path} is not a JSON object.\nMend it first; the Engine would not start with it.")
    listed = settings.get(KEY)
    if listed is not None and not (isinstance(listed, list) and all(isinstance(each, str) for each in listed)):
        raise Refused(f'{path}: "{KEY}" must be a list of names.\nMend it first; the Engine would not start with it.')
    return settings


def names(settings: dict[str, Any]) -> list[str]:
    """Return the authorization plugins that the settings name."""
    return list(settings.get(KEY) or [])


def with_names(settings: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """Return the settings with other authorization plugins, everything else as it was and where it was."""
    changed = {**settings, KEY: wanted}
    if not wanted:
        del changed[KEY]
    return changed


def write(path: Path, settings: dict[str, Any]) -> None:
    """Replace the file in one step, indented as it was, after a copy of it was put beside it.

    Raises:
        Unavailable: it cannot be written; nothing has changed.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        if before:
            shutil.copy2(path, path.with_name(path.name + _BACKUP))
        found = re.search(r"\{\s*\n([ \t]+)", before)
        text = json.dumps(settings, indent=found[1] if found else 2, ensure_ascii=False) + "\n"
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        mode = path.stat().st_mode & 0o777 if before else 0o644
        os.chmod(new.name, mode)  # noqa: PTH101 - its name is all there is
        os.replace(new.name, path)  # noqa: PTH105 - as above
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error}.\nRun this as root: sudo convgpu authz ...") from error
