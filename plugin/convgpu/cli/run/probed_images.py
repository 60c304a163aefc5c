"""What was found in images: an image never changes behind its id, and to look into one takes a container."""

import contextlib
import json
import os
from pathlib import Path
from typing import Final

from convgpu.cli.connect.engine import Engine, Image
from convgpu.protocol.layout import MOUNT_PATH

_MOST: Final = 500  # images that are remembered


def is_occupied(engine: Engine, name: str, image: Image, file: Path | None = None) -> bool:
    """Say whether an image has something where the volume is mounted.

    Args:
        engine: that has it.
        name: of the image.
        image: its configuration.
        file: where answers are kept; None: in the user's cache.
    """
    file = file or _cache()
    found = _read(file)
    if image.id not in found:
        found[image.id] = engine.image_has(name, MOUNT_PATH)
        if image.id:
            _write(file, dict(list(found.items())[-_MOST:]))
    return found[image.id]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "convgpu/images.json"


def _read(file: Path) -> dict[str, bool]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}  # absent or damaged: the images are looked into again
    return {key: value for key, value in found.items() if value in (True, False)} if isinstance(found, dict) else {}


def _write(file: Path, found: dict[str, bool]) -> None:
    """Replace the file in one step; a home that cannot be written only costs time."""
    import tempfile  # noqa: PLC0415 - only the first run of an image needs it

    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as fresh:
            json.dump(found, fresh)
        Path(fresh.name).replace(file)
