"""The host's device nodes and symbolic links, as the plugin can read them."""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from convgpu.authz.facts.links import LONG, LOOK, Followed, follow, local_path
from convgpu.authz.ports import GpuPath, Way
from convgpu.runtime.devices import GpuNumbers
from convgpu.runtime.gpu_requests import is_nvidia_node
from convgpu.runtime.paths import normal, plain

# The kernel follows 40 links, but the Engine follows those of `--device` itself, by Go's EvalSymlinks.
_MAX_LINKS: Final = 255
# Under strict rules. A long chain is good for nothing but to make each look-up slow, and by that races easy.
_FEW_LINKS: Final = 8
_MAX_STEPS: Final = 512  # looked up one by one, each for longer than the one before: what takes more leads to `/`
_FEW_STEPS: Final = 256  # likewise under strict rules: each costs a look, and another at the folder

# What it may cost to look through the folders of one call, as `LOOK` is counted: 100,000 names, or 4,000 links.
_MAX_COST: Final = 200_000
_FOLDER: Final = 20
_NAME: Final = 2  # whose kind its folder tells


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
        found = follow(self._root(), path, _MAX_LINKS, _MAX_STEPS)
        whole = os.path.join(found.end, *found.left)  # noqa: PTH118 - text, not a path of this process
        return normal(whole) if found.is_known else "/"

    def way(self, path: str) -> Way:
        """Return how a path is followed, if that takes few links and steps: else nobody says where it leads."""
        found = follow(self._root(), path, _FEW_LINKS + 1, _FEW_STEPS)
        is_end = found.is_known and not found.left
        return Way(normal(found.end) if is_end else "/", tuple(found.folders))

    def others_write(self, folder: str) -> bool:
        """Tell whether others than root may make, remove and exchange names in a folder, by its mode.

        One that is missing nobody writes: whoever makes it writes the one above it. One that cannot be read counts as
        written by others.
        """
        local = local_path(self._root(), folder)
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
        local = local_path(self._root(), path)
        try:
            return local is None or not os.lstat(local)
        except (OSError, ValueError):
            return True

    def gpu_at(self, paths: Iterable[str]) -> GpuPath | None:
        """Return the first path of one call's `--device` that gives a GPU: directly, by a link, or inside a folder."""
        search = _Search(self._root(), self._numbers.at_once())
        for path in paths:
            try:
                if any(search.is_gpu(place) for place in self._readings(path)):
                    return GpuPath(path)
            except _TooMuch:
                return GpuPath(path, is_seen=False)
        return None

    def _readings(self, path: str) -> Iterable[str]:
        """Return where the Engine may be led by a path: it looks at it as it is, and takes `..` out as text below it.

        The Engine itself works in the root folder.
        """
        whole = "/" + path
        return dict.fromkeys(self.resolve(each) for each in (whole, plain(whole)))

    def is_gpu_number(self, major: int, minor: int | None = None) -> bool:
        """Tell whether character devices of these numbers, or any minor of a major number, belong to a GPU."""
        return self._numbers.has(major, minor)


class _TooMuch(Exception):  # noqa: N818 - an answer, not an accident
    """Nobody can tell what is in a folder, for what it would cost."""


class _Search:
    """Looks for GPUs at the paths of one call; what their folders may cost is bounded for all together.

    Their users made them as large and deep as there is room.

    Args:
        root: the Engine's `/`, as this process reads it; None if it can read `/dev` only.
        is_gpu_number: tells whether character devices of two numbers belong to a GPU.
    """

    def __init__(self, root: Path | None, is_gpu_number: Callable[[int, int], bool]) -> None:
        self._root = root
        self._is_gpu_number = is_gpu_number
        self._left = _MAX_COST

    def is_gpu(self, path: str) -> bool:
        """Tell whether a path with no link left in it gives a GPU.

        Raises:
            _TooMuch: nobody can tell.
        """
        if is_nvidia_node(path) or path in {"/", "/dev"}:
            return True
        local = local_path(self._root, path)
        if local is None:
            return True  # a path outside of /dev that cannot be read; device nodes belong into /dev
        try:
            status = os.stat(local)  # noqa: PTH116 - hundreds of them
        except (OSError, ValueError) as error:
            # The Engine refuses a path that does not exist, and one with a NUL in it. Its paths are shorter than ours.
            return isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        return self._holds_gpu(path) if stat.S_ISDIR(status.st_mode) else self._is_gpu(status)

    def _holds_gpu(self, top: str) -> bool:
        folders = [top]
        while folders:
            folder = folders.pop()
            self._pay(_FOLDER, folder)
            for entry in _entries(local_path(self._root, folder)):
                self._pay(_NAME)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{folder}/{entry.name}")
                    elif self._gives_gpu(entry, folder):
                        return True
                except OSError as error:
                    _refuse_too_long(error)
        return False

    def _gives_gpu(self, entry: os.DirEntry[str], folder: str) -> bool:
        if entry.is_file(follow_symlinks=False):
            return False
        if entry.is_symlink():
            # Engine 20.10 gives nothing for it, and newer ones what it leads to (moby's issue 52341).
            return self._leads_to_gpu(follow(self._root, entry.name, _MAX_LINKS, _MAX_STEPS, start=folder))
        self._pay(LOOK, folder)
        return self._is_gpu(entry.stat(follow_symlinks=False))

    def _leads_to_gpu(self, found: Followed) -> bool:
        self._pay(found.cost, found.end)
        local = local_path(self._root, found.end)
        if found.is_known and found.left:
            return False  # more links than the Engine follows
        if found.left or not found.end or local is None:
            raise _TooMuch
        # Links of processes are followed, as nothing is left behind them.
        return self._is_gpu(os.stat(local))  # noqa: PTH116 - thousands of them

    def _is_gpu(self, status: os.stat_result) -> bool:
        device = status.st_rdev
        return stat.S_ISCHR(status.st_mode) and self._is_gpu_number(os.major(device), os.minor(device))

    def _pay(self, cost: int, path: str = "") -> None:
        self._left -= cost + len(path) // LONG
        if self._left < 0:
            raise _TooMuch


def _entries(folder: str | None) -> Iterator[os.DirEntry[str]]:
    """Return what is in a folder: nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError as error:
        _refuse_too_long(error)


def _refuse_too_long(error: OSError) -> None:
    """Raise `_TooMuch` for what is below a path that is too long for this process: that of the Engine is shorter."""
    if error.errno == errno.ENAMETOOLONG:
        raise _TooMuch from None
