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
RUNTIMES: Final = "runtimes"
DEFAULT_RUNTIME: Final = "default-runtime"
_BACKUP: Final = ".before-convgpu"
_AS_ROOT: Final = "Run this as root (sudo)."


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
        raise Unavailable(f"{path} cannot be read: {error}.\n{_AS_ROOT}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not JSON: {error}.\nMend it first; the Engine would not start with it.") from error
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise Refused(f"{path} is not JSON: {error}.\nMend it first; the Engine would not start with it.") from error
    if not isinstance(settings, dict):
        raise Refused(f"{path} is not a JSON object.\nMend it first; the Engine would not start with it.")
    listed = settings.get(KEY)
    if listed is not None and not (isinstance(listed, list) and all(isinstance(each, str) for each in listed)):
        raise Refused(f'{path}: "{KEY}" must be a list of names.\nMend it first; the Engine would not start with it.')
    runtimes = settings.get(RUNTIMES, {})
    if not (isinstance(runtimes, dict) and all(isinstance(each, dict) for each in runtimes.values())):
        raise Refused(f'{path}: "{RUNTIMES}" must be an object.\nMend it first; the Engine would not start with it.')
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


def runtimes(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the runtimes that the settings name."""
    return dict(settings.get(RUNTIMES, {}))


def with_runtimes(settings: dict[str, Any], wanted: dict[str, Any], default: str | None) -> dict[str, Any]:
    """Return the settings with other runtimes, and another default one or none, everything else as it was."""
    changed = {**settings, RUNTIMES: wanted, DEFAULT_RUNTIME: default}
    empty = {key for key in (RUNTIMES, DEFAULT_RUNTIME) if not changed[key]}
    return {key: value for key, value in changed.items() if key not in empty}


def explicit(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with runtimes and default runtime named.

    An Engine that reads its settings again leaves what is not in them as it was (moby, daemon/reload.go:
    `if conf.IsValueSet("runtimes")`).
    """
    return {RUNTIMES: {}, DEFAULT_RUNTIME: "runc", **settings}


def write(path: Path, settings: dict[str, Any], *, copy: bool = True) -> None:
    """Replace the file in one step, indented as it was, after a copy of it was put beside it.

    A file behind a symbolic link is replaced there. Mode and owner stay.

    Raises:
        Unavailable: it cannot be written; nothing has changed.
    """
    path = path.resolve()
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        if before and copy:
            shutil.copy2(path, path.with_name(path.name + _BACKUP))
        found = re.search(r"\{\s*\n([ \t]+)", before)
        _replace(path, json.dumps(settings, indent=found[1] if found else 2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error}; it is as it was.\n{_AS_ROOT}") from error


def _replace(path: Path, text: str) -> None:
    """Write a new file and rename it: a reader, and a host that loses power, sees the old file or the new one."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as new:
        fresh = Path(new.name)
        try:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
            if path.exists():
                status = path.stat()
                os.fchown(new.fileno(), status.st_uid, status.st_gid)
                fresh.chmod(status.st_mode & 0o777)
            else:
                fresh.chmod(0o644)
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
