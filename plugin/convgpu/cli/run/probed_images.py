"""What was found in images: an image never changes behind its id, and to look into one takes a container."""

from __future__ import annotations

import os

from convgpu.protocol.layout import MOUNT_PATH
from convgpu.protocol.quick import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Protocol

    from convgpu.cli.connect.engine_documents import Image

    class LooksIntoImages(Protocol):
        """An Engine that can be asked what is in an image."""

        def image_has(self, image: str, path: str, /) -> bool:
            """Say whether an image has something at `path`."""


_MOST: Final = 500  # images that are remembered


def is_occupied(engine: LooksIntoImages, name: str, image: Image, file: os.PathLike[str] | str | None = None) -> bool:
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


def _cache() -> str:
    return f"{os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')}/convgpu/images.json"


def _read(file: os.PathLike[str] | str) -> dict[str, bool]:
    try:
        with open(file, "rb") as opened:
            found = quick_json.loads(opened.read())
    except (OSError, ValueError):
        return {}  # absent or damaged: the images are looked into again
    return {key: value for key, value in found.items() if value in (True, False)} if isinstance(found, dict) else {}


def _write(file: os.PathLike[str] | str, found: dict[str, bool]) -> None:
    """Replace the file in one step; a home that cannot be written only costs time."""
    import contextlib  # only the first run of an image needs them
    import json
    import tempfile

    folder = os.path.dirname(file)
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as fresh:
            json.dump(found, fresh)
        os.replace(fresh.name, file)
