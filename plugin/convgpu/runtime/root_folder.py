"""Where the destinations of a container's mounts lie in its final root file system, read before it starts.

An image or its owner can put a link on the way to a place of the hook, or rename a folder there. The OCI runtime
follows such links inside the root; so does this reader, name by name, with each folder opened and never left.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from convgpu.runtime.paths import is_at_or_below, normal

_MAX_LINKS: Final = 40  # as the kernel


class RootFolder:
    """The root file system of a container that is being created.

    Args:
        root: the folder; one that is not there has no links.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def destinations(self, mounts: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return where each mount lies, in their order: those before it are in place."""
        placed: list[tuple[str, str]] = []
        for mount in mounts:
            target = self.lead(str(mount.get("destination")), placed)
            placed.append((target, _shown_folder(mount)))
        return [target for target, _ in placed]

    def lead(self, path: str, placed: Sequence[tuple[str, str]] = ()) -> str:
        """Return where a path of the container leads.

        Args:
            path: absolute.
            placed: mounts that are made before, with the folder of the host that each shows; empty for an empty one.
        """
        done, todo, links = "/", _parts(path), 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                done = os.path.dirname(done)  # noqa: PTH120 - text, not a path of this process
                continue
            step = os.path.join(done, part)  # noqa: PTH118 - as above
            target = self._link(step, placed)
            if target is None or links >= _MAX_LINKS:
                done = step
                continue
            links += 1
            todo = _parts(target) + todo
            if target.startswith("/"):
                done = "/"
        return done

    def _link(self, path: str, placed: Sequence[tuple[str, str]]) -> str | None:
        """Return the text of the link at a path whose folder has no link in it; None if there is none."""
        top, folder = "/", str(self._root)
        for target, shown in placed:
            if target != path and is_at_or_below(path, target):
                top, folder = target, shown
        if not folder:
            return None
        parent, name = os.path.split(path)
        try:
            descriptor = _open_below(folder, os.path.relpath(parent, top))
        except OSError:
            return None
        try:
            return os.readlink(name, dir_fd=descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)


def _open_below(folder: str, path: str) -> int:
    """Open a folder below another one, name by name, and through no link; that of the top may be one."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in _parts(path):
        try:
            deeper = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


def _shown_folder(mount: Mapping[str, Any]) -> str:
    source = str(mount.get("source") or "")
    binds = mount.get("type") == "bind" or {"bind", "rbind"} & set(mount.get("options") or ())
    return source if binds and source.startswith("/") else ""


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def text_destinations(mounts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the destinations as their text says, for a bundle whose root is not known."""
    return [normal(str(mount.get("destination"))) for mount in mounts]
