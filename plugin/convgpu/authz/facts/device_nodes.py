"""The host's device nodes and links, as the plugin sees them."""

import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convgpu.runtime.devices import GpuNumbers
from convgpu.runtime.gpu_requests import is_nvidia_node
from convgpu.runtime.paths import is_at_or_below, normal

_PATIENCE: Final = 1.0
_LINKS: Final = 40  # as many as the kernel follows
_NODES: Final = 20_000  # in one folder; more are not looked at


def engine_root(engine: Path) -> Path | None:
    """Return where the root of the process shows that listens on the Engine's socket; None if nobody may look.

    That is the Engine, or the systemd that opened the socket for it. It takes pidHost and CAP_SYS_PTRACE.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.settimeout(_PATIENCE)
            connection.connect(str(engine))
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except OSError:
            return None
    root = Path(f"/proc/{pid}/root")
    return root if os.access(root / "dev", os.R_OK) else None


class HostDevices:
    """What lies on the host now; links and nodes can change until the container starts, by whoever may write there.

    Args:
        root: returns where the Engine's `/` is seen; without it only `/dev` is.
        sysfs: of the host's kernel.
        devices: `/proc/devices`.
    """

    def __init__(
        self, root: Callable[[], Path | None], sysfs: Path = Path("/sys"), devices: Path = Path("/proc/devices")
    ) -> None:
        self._root = root
        self._numbers = GpuNumbers(sysfs, devices)

    def resolve(self, path: str) -> str:
        """Return a path of the host without links, as far as it can be seen; normal in any case."""
        path = normal(path)
        if not path.startswith("/"):
            return path
        done, todo = "/", [part for part in path.split("/") if part]
        links = 0
        while todo and links < _LINKS:
            part = todo.pop(0)
            if part == "..":
                done = os.path.dirname(done)  # noqa: PTH120 - text, not a path of this process
                continue
            step = os.path.join(done, part)  # noqa: PTH118 - as above
            target = self._link(step)
            if target is None:
                done = step
                continue
            links += 1
            todo = [each for each in target.split("/") if each not in {"", "."}] + todo
            if target.startswith("/"):
                done = "/"
        return normal(os.path.join(done, *todo))  # noqa: PTH118 - as above

    def is_gpu(self, path: str) -> bool:
        """Tell whether `--device path` gives a GPU, directly, by a link, or inside a folder."""
        path = self.resolve(path)
        if is_nvidia_node(path) or path in {"/", "/dev"}:
            return True
        seen = self._seen(path)
        if seen is None:
            return True  # outside /dev, where nothing can be seen; nobody keeps devices there
        try:
            status = seen.stat()
        except (OSError, ValueError):
            return False  # the Engine refuses what is not there, and what has a NUL in its name
        if stat.S_ISDIR(status.st_mode):
            return self._holds_gpu(seen)
        return self._is_gpu(status)

    def is_gpu_number(self, major: int, minor: int | None = None) -> bool:
        """Tell whether character devices of these numbers, or any minor of a major number, belong to a GPU."""
        return self._numbers.has(major, minor)

    def _is_gpu(self, status: os.stat_result) -> bool:
        device = status.st_rdev
        return stat.S_ISCHR(status.st_mode) and self._numbers.has(os.major(device), os.minor(device))

    def _holds_gpu(self, folder: Path) -> bool:
        count = 0
        for top, _, names in os.walk(folder):
            for name in names:
                count += 1
                try:
                    status = os.stat(os.path.join(top, name))  # noqa: PTH116, PTH118 - thousands of them
                except OSError:
                    continue
                if count > _NODES or self._is_gpu(status):
                    return True
        return False

    def _seen(self, path: str) -> Path | None:
        """Return where this process finds a path of the host."""
        root = self._root()
        if root is not None:
            return root / path.lstrip("/")
        return Path(path) if is_at_or_below(path, "/dev") else None

    def _link(self, path: str) -> str | None:
        seen = self._seen(path)
        if seen is None:
            return None
        try:
            return os.readlink(seen)  # noqa: PTH115 - its text, not a Path
        except (OSError, ValueError):
            return None
