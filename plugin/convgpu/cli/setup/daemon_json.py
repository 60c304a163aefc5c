"""`daemon.json`, the Engine's settings: read, changed in one key, written so that nothing is lost."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from convgpu.cli.terminal.errors import Refused, Unavailable

KEY: Final = "authorization-plugins"
RUNTIMES: Final = "runtimes"
DEFAULT_RUNTIME: Final = "default-runtime"
_BACKUP: Final = ".before-convgpu"
_ABSENT: Final = b"there was no such file\n"  # no settings: nothing that an Engine could have read
_PROGRAM: Final = "convgpu-runtime"
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


def is_same_plugin(name: str, driver: str) -> bool:
    """Tell whether two names mean one plugin of the Engine."""
    return name.removesuffix(":latest") == driver.removesuffix(":latest")


def is_our_runtime(found: dict[str, Any]) -> bool:
    """Tell whether this is our runtime."""
    return str(found.get("path", "")).endswith(_PROGRAM)


def has_ours(settings: dict[str, Any], driver: str) -> bool:
    """Tell whether the settings name the plugin or our runtime."""
    return any(is_same_plugin(each, driver) for each in names(settings)) or any(
        map(is_our_runtime, runtimes(settings).values())
    )


def contents(path: Path) -> bytes | None:
    """Return the file as it is, for `put_back`; None where there is none."""
    return path.read_bytes() if path.exists() else None


def write(path: Path, settings: dict[str, Any], *, copy: bool = False) -> None:
    """Replace the file in one step, indented as it was; with `copy` a copy of it is put beside it first.

    A file behind a symbolic link is replaced there. Mode and owner stay.

    Raises:
        Unavailable: it cannot be written; nothing has changed.
    """
    with _as_it_was(path) as real:
        before = contents(real)
        real.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            _replace(_copy(real), _ABSENT if before is None else before, like=real)
        found = re.search(r"\{\s*\n([ \t]+)", (before or b"").decode())
        text = json.dumps(settings, indent=found[1] if found else 2, ensure_ascii=False) + "\n"
        _replace(real, text.encode(), like=real)


def write_without(path: Path, settings: dict[str, Any]) -> bool:
    """Write the settings from which ours was taken: where the copy has just these, its bytes, and the copy is gone.

    Returns:
        Whether it is byte for byte as before.

    Raises:
        Unavailable: it cannot be written; nothing has changed.
    """
    copy = _copy(path.resolve())
    try:
        kept = contents(copy)
        same = kept is not None and _meant(settings) == ({} if kept == _ABSENT else _meant(read(copy)))
    except (OSError, Refused, Unavailable):
        same = False
    if not same:
        write(path, settings)
        return False
    put_back(path, None if kept == _ABSENT else kept)
    copy.unlink(missing_ok=True)
    return True


def put_back(path: Path, before: bytes | None) -> None:
    """Write what `contents` returned.

    Raises:
        Unavailable: it cannot be written; nothing has changed.
    """
    with _as_it_was(path) as real:
        if before is None:
            real.unlink(missing_ok=True)
        else:
            _replace(real, before, like=real)


def _meant(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without what says no more than its absence."""
    plain: dict[str, Any] = {KEY: [], RUNTIMES: {}, DEFAULT_RUNTIME: "runc"}
    return {key: value for key, value in settings.items() if key not in plain or value not in (plain[key], None)}


def _copy(real: Path) -> Path:
    return real.with_name(real.name + _BACKUP)


@contextmanager
def _as_it_was(path: Path) -> Iterator[Path]:
    try:
        yield path.resolve()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path} cannot be written: {error}; it is as it was.\n{_AS_ROOT}") from error


def _replace(path: Path, text: bytes, *, like: Path) -> None:
    """Write a new file and rename it: a reader, and a host that loses power, sees the old file or the new one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as new:
        fresh = Path(new.name)
        try:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
            if like.exists():
                status = like.stat()
                os.fchown(new.fileno(), status.st_uid, status.st_gid)
                fresh.chmod(status.st_mode & 0o777)
            else:
                fresh.chmod(0o644)
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
