"""The host's device nodes and symbolic links, as the plugin can read them."""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Final

from convgpu.authz.ports import Way
from convgpu.runtime.devices import GpuNumbers
from convgpu.runtime.gpu_requests import is_nvidia_node
from convgpu.runtime.paths import is_at_or_below, normal

# The kernel follows 40 links, but the Engine follows those of `--device` itself, by Go's EvalSymlinks.
_MAX_LINKS: Final = 255
# Under strict rules. A long chain is good for nothing but to make each look-up slow, and by that races easy.
_FEW_LINKS: Final = 8
_MAX_STEPS: Final = 512  # looked up one by one, each for longer than the one before: what takes more leads to `/`
_FEW_STEPS: Final = 256  # likewise under strict rules: each costs a look, and another at the folder
_PATH_MAX: Final = 4096  # what is longer neither the kernel nor the Engine opens (path_resolution(7))
_MAX_NODES: Final = 500  # of one folder; one with more, or deeper ones, counts as one that holds a GPU
_MAX_DEPTH: Final = 8


class HostDevices:
    """Device nodes and links at this moment; users of the host can change them until the container starts.

    Args:
        root: returns a path to the Engine's `/`; if it returns None, only `/dev` can be read.
        sysfs: of the host's kernel.
        devices: `/proc/devices`.
    """

    def __init__(
        self, root: Callable[[], Path | None], sysfs: Path = Path("/sys"), devices: Path = Path("/proc/devices")
    ) -> None:
        self._root = root
        self._numbers = GpuNumbers(sysfs, devices)

    def resolve(self, path: str) -> str:
        """Return where a path of the host leads, as far as its links can be read; normal in any case.

        It is followed as the kernel follows it: step by step, so that `..` behind a link goes up from where the link
        leads. `/` stands for where links of processes lead (`/proc/PID/root`, `/dev/fd/7`): their text says nothing.
        """
        if not path.startswith("/"):
            return normal(path)
        done, todo, _ = self._follow(path, _MAX_LINKS)
        return normal(os.path.join(done, *todo))  # noqa: PTH118 - text, not a path of this process

    def way(self, path: str) -> Way:
        """Return how a path is followed, if that takes few links and steps: else nobody says where it leads."""
        done, todo, folders = self._follow(path, _FEW_LINKS + 1, _FEW_STEPS)
        return Way("/" if todo else normal(done), tuple(folders))

    def others_write(self, folder: str) -> bool:
        """Tell whether others than root may make, remove and exchange names in a folder, by its mode.

        One that is missing nobody writes: whoever makes it writes the one above it. One that cannot be read counts as
        written by others.
        """
        local = self._local_path(folder)
        try:
            status = None if local is None else os.stat(f"{local}/.")  # noqa: PTH116 - the root itself is a link
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError):
            return True
        # An ACL that lets others write shows in the bits of the group.
        return status is None or status.st_uid != 0 or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))

    def is_missing(self, path: str) -> bool:
        """Tell whether nothing is at a path without links, as far as that can be seen."""
        local = self._local_path(path)
        try:
            return local is None or not os.lstat(local)
        except (OSError, ValueError):
            return True

    def _follow(self, path: str, most: int, most_steps: int = _MAX_STEPS) -> tuple[str, list[str], dict[str, None]]:
        """Return how far a path leads within so many links, what of it is left, and the folders that were looked in."""
        done, todo = "/", deque(_parts(path))
        folders: dict[str, None] = {}
        if len(path) >= _PATH_MAX:
            return "/", [], folders
        links = steps = 0
        while todo and links < most:
            steps += 1
            if steps > most_steps:
                return "/", [], folders
            part = todo.popleft()
            if part == "..":
                done = os.path.dirname(done)  # noqa: PTH120 - text, not a path of this process
                continue
            folders[done] = None
            step = os.path.join(done, part)  # noqa: PTH118 - as above
            target, is_there = self._read_link(step)
            if target is None:
                done = step
                if not is_there and ".." not in todo:  # and no link lies below nothing
                    if steps + len(todo) > most_steps:
                        return "/", [], folders
                    *above, done = accumulate(todo, os.path.join, initial=done)
                    folders |= dict.fromkeys(above)
                    todo.clear()
                continue
            if done != "/proc" and is_at_or_below(done, "/proc"):
                return "/", [], folders
            links += 1
            todo.extendleft(reversed(_parts(target)))
            if target.startswith("/"):
                done = "/"
        return done, list(todo), folders

    def is_gpu(self, path: str) -> bool:
        """Tell whether `--device path` gives a GPU, directly, by a link, or inside a folder."""
        path = self.resolve("/" + path)  # the Engine itself works in the root folder
        if is_nvidia_node(path) or path in {"/", "/dev"}:
            return True
        local = self._local_path(path)
        if local is None:
            return True  # a path outside of /dev that cannot be read; device nodes belong into /dev
        try:
            status = local.stat()
        except (OSError, ValueError):
            return False  # the Engine refuses a path that does not exist, and one with a NUL in it
        if stat.S_ISDIR(status.st_mode):
            return self._holds_gpu(local)
        return self._is_gpu(status)

    def is_gpu_number(self, major: int, minor: int | None = None) -> bool:
        """Tell whether character devices of these numbers, or any minor of a major number, belong to a GPU."""
        return self._numbers.has(major, minor)

    def _is_gpu(self, status: os.stat_result) -> bool:
        device = status.st_rdev
        return stat.S_ISCHR(status.st_mode) and self._numbers.has(os.major(device), os.minor(device))

    def _holds_gpu(self, top: Path) -> bool:
        """Tell whether a GPU lies in a folder or below; its user made it as large and deep as there is room."""
        count, folders = 0, [(str(top), 0)]
        while folders:
            folder, depth = folders.pop()
            for path, status in _entries(folder):
                count += 1
                if count > _MAX_NODES or depth > _MAX_DEPTH or self._is_gpu(status):
                    return True
                if stat.S_ISDIR(status.st_mode):
                    folders.append((path, depth + 1))
        return False

    def _local_path(self, path: str) -> Path | None:
        """Return the path by which this process reads a path of the host; None if it cannot."""
        root = self._root()
        if root is not None:
            return root / path.lstrip("/")
        return Path(path) if is_at_or_below(path, "/dev") else None

    def _read_link(self, path: str) -> tuple[str | None, bool]:
        """Return where a link leads, None for what is none; and False where nothing is there."""
        local = self._local_path(path)
        if local is None:
            return None, True
        try:
            return os.readlink(local), True  # noqa: PTH115 - its text, not a Path
        except (FileNotFoundError, NotADirectoryError):
            return None, False
        except (OSError, ValueError):
            return None, True


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Return what is in a folder; of a link to a node the node, of a link to a folder the link."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - hundreds of them
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118 - as above
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116 - as above
            is_link = stat.S_ISDIR(status.st_mode) and os.path.islink(path)  # noqa: PTH114 - as above
            yield path, os.lstat(path) if is_link else status


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]
