"""The OCI hooks' client of the scheduler: on its `admin.sock`, at the path that the host sees."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convgpu.client.admin import AdminClient
from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol.layout import ADMIN_SOCKET_FILE, CONTAINERS_FOLDER
from convgpu.protocol.requests import CreateVolume, ListContainers, MountVolume, RemoveVolume, UnmountVolume

_PLUGINS: Final = Path("/var/lib/docker/plugins")
# Timeouts and intervals in seconds.
_BEGIN_TIMEOUT: Final = 5.0  # a scheduler that is starting is waited for
_END_TIMEOUT: Final = 2.0
_BUSY_TIMEOUT: Final = 5.0  # the connections of a container's processes may outlive it so long
_RETRY_INTERVAL: Final = 0.05


class NoScheduler(LookupError):  # noqa: N818 - the state of a host
    """There is no directory of a scheduler, or more than one; the text is for the user."""


def find_directory(plugins: Path = _PLUGINS) -> Path:
    """Return the directory of the one ConvGPU plugin of this host's Engine.

    Raises:
        NoScheduler: there is none, or more than one.
    """
    found = sorted(path.parent for path in plugins.glob(f"*/propagated-mount/{ADMIN_SOCKET_FILE}"))
    if len(found) == 1:
        return found[0]
    what = "more than one ConvGPU plugin" if found else "no ConvGPU plugin"
    raise NoScheduler(f"{what} below {plugins}: name its directory with --convgpu-directory=DIR in the runtimeArgs")


class Registration:
    """Registers one container, by its id, that has no volume of Docker's.

    Args:
        directory: of the scheduler, as the host sees it.
        container: its id.
        begins: the container starts; a scheduler that is starting is waited for.
    """

    def __init__(self, directory: Path, container: str, *, begins: bool) -> None:
        self._directory = directory
        self._container = container
        # The path of a UNIX socket has at most 107 characters, and that of a plugin's directory is longer.
        self._descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._client = AdminClient(
            f"/proc/self/fd/{self._descriptor}/{ADMIN_SOCKET_FILE}", _BEGIN_TIMEOUT if begins else _END_TIMEOUT
        )

    def begin(self, options: dict[str, str]) -> Path:
        """Register the container's start, and return its folder as the host sees it.

        Raises:
            SchedulerRefused, SchedulerUnavailable: see `Scheduler`.
        """
        self._client.ask(CreateVolume(self._container, options))
        self._unmount(least=0)  # of an earlier start whose end was never registered
        mountpoint = self._client.ask(MountVolume(self._container, self._container)).mountpoint
        return self._directory / CONTAINERS_FOLDER / Path(mountpoint).name

    def end(self) -> None:
        """Register the container's end; repeating it is no error.

        Raises:
            SchedulerRefused, SchedulerUnavailable: see `Scheduler`.
        """
        try:
            self._unmount(least=1)  # also where a list of the Engine's says that it runs, and its mount was forgotten
        except SchedulerRefused as error:
            if error.code == "unknown":
                return
            raise
        deadline = time.monotonic() + _BUSY_TIMEOUT
        self._retry(lambda: self._client.ask(RemoveVolume(self._container)), deadline)

    def _unmount(self, least: int) -> None:
        containers = self._client.ask(ListContainers(self._container)).containers
        for _ in range(max(least, sum(container.mounts for container in containers))):
            self._client.ask(UnmountVolume(self._container, self._container))

    @staticmethod
    def _retry(request: Callable[[], object], deadline: float) -> None:
        while True:
            try:
                request()
            except SchedulerRefused as error:
                if error.code != "busy" or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_INTERVAL)
            else:
                return
