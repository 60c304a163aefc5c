"""The scheduler as the hooks ask it: on its `admin.sock`, at the path that the host sees."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convgpu.client.admin import AdminClient, SchedulerRefused

_PLUGINS: Final = Path("/var/lib/docker/plugins")
_BEGIN_TIME: Final = 5.0  # seconds for a scheduler that is just starting
_END_TIME: Final = 2.0
_BUSY_TIME: Final = 5.0  # seconds that the connections of a container's processes may outlive it
_STEP: Final = 0.05


class NoScheduler(LookupError):  # noqa: N818 - the state of a host
    """There is no directory of a scheduler, or more than one; the text is for the user."""


def find_directory(plugins: Path = _PLUGINS) -> Path:
    """Return the directory of the one ConvGPU plugin of this host's Engine.

    Raises:
        NoScheduler: there is none, or more than one.
    """
    found = sorted(path.parent for path in plugins.glob("*/propagated-mount/admin.sock"))
    if len(found) == 1:
        return found[0]
    what = "more than one ConvGPU plugin" if found else "no ConvGPU plugin"
    raise NoScheduler(f"{what} below {plugins}: name its directory with --convgpu-directory=DIR in the runtimeArgs")


class Registration:
    """One container that the scheduler knows by its id, without a volume of Docker's.

    Args:
        directory: of the scheduler, as the host sees it.
        container: its id.
        begins: and does not end; then a scheduler that is just starting is waited for.
    """

    def __init__(self, directory: Path, container: str, *, begins: bool) -> None:
        self._directory = directory
        self._container = container
        # The path of a UNIX socket has at most 107 characters, and that of a plugin's directory is longer.
        self._descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._client = AdminClient(f"/proc/self/fd/{self._descriptor}/admin.sock", _BEGIN_TIME if begins else _END_TIME)

    def begin(self, options: dict[str, str]) -> Path:
        """Tell that it starts, and return its folder as the host sees it.

        Raises:
            SchedulerRefused, SchedulerUnavailable: see `AdminClient`.
        """
        self._client.request("create", name=self._container, options=options)
        self._unmount()  # of an earlier start whose end was never told
        answer = self._client.request("mount", name=self._container, id=self._container)
        return self._directory / "containers" / Path(str(answer["mountpoint"])).name

    def end(self) -> None:
        """Tell that it ended. Once more is no error.

        Raises:
            SchedulerRefused, SchedulerUnavailable: see `AdminClient`.
        """
        try:
            self._unmount()
        except SchedulerRefused as error:
            if error.code == "unknown":
                return
            raise
        deadline = time.monotonic() + _BUSY_TIME
        self._retry(lambda: self._client.request("remove", name=self._container), deadline)

    def _unmount(self) -> None:
        rows = self._client.request("containers", name=self._container)["containers"]
        mounts = sum(int(row["mounts"]) for row in rows) if isinstance(rows, list) else 0
        for _ in range(mounts):
            self._client.request("unmount", name=self._container, id=self._container)

    @staticmethod
    def _retry(question: Callable[[], object], deadline: float) -> None:
        while True:
            try:
                question()
            except SchedulerRefused as error:
                if error.code != "busy" or time.monotonic() > deadline:
                    raise
                time.sleep(_STEP)
            else:
                return
