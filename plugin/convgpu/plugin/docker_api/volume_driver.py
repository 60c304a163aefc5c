"""The volume calls: each becomes a request to the scheduler, whose answers and refusals go back to the user."""

import logging
import re
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from convgpu.client.scheduler import Scheduler, SchedulerUnavailable
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.readonly_mount import ReadOnlyMount
from convgpu.protocol.records import Container, Share
from convgpu.protocol.requests import CreateVolume, MountVolume, RemoveVolume, UnmountVolume
from convgpu.protocol.sizes import format_size

_log: Final = logging.getLogger(__name__)

# Docker shows the scope and does nothing with it; a volume of ours exists on one host only.
SCOPE: Final = "local"
# The names of anonymous volumes, and of what `convgpu-runtime` registers: the container's id.
_ID: Final = re.compile("[0-9a-f]{64}")


class UnknownVolume(LookupError):  # noqa: N818 - an answer
    """Docker asks for a volume that the scheduler does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no ConvGPU volume {name}")


class VolumeDriver:
    """The driver of the volumes. Every call is idempotent; the scheduler guarantees that.

    Args:
        scheduler: decides.
        mount: of the containers' folders, read-only.
        on_use: is called after each mount and unmount.
    """

    def __init__(self, scheduler: Scheduler, mount: ReadOnlyMount, on_use: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._mount = mount
        self._on_use = on_use

    def create(self, request: wire.CreateRequest) -> bytes:
        """Create a volume: the scheduler checks its options and keeps them; no memory is reserved yet."""
        if _ID.fullmatch(request.name):
            container = self._scheduler.find_container(request.name)
            if container is not None and container.injected:
                raise UnknownVolume(request.name)
        self._scheduler.ask(CreateVolume(request.name, dict(request.options)))
        _log.info("volume %s created with %s", request.name, dict(request.options))
        return wire.encode_done()

    def remove(self, request: wire.NameRequest) -> bytes:
        """Remove a volume that is not mounted."""
        self._scheduler.ask(RemoveVolume(request.name))
        _log.info("volume %s removed", request.name)
        return wire.encode_done()

    def mount(self, request: wire.MountRequest) -> bytes:
        """Mount a volume for a container that starts, or for `docker cp`; the scheduler counts mounts by id."""
        self._mount.prepare()
        mountpoint = self._scheduler.ask(MountVolume(request.name, request.id)).mountpoint
        _log.info("volume %s mounted for %.12s", request.name, request.id)
        self._on_use()
        return wire.encode_mountpoint(self._mount.path(mountpoint))

    def unmount(self, request: wire.MountRequest) -> bytes:
        """Undo one mount: its container ended, or `docker cp` is done."""
        self._scheduler.ask(UnmountVolume(request.name, request.id))
        _log.info("volume %s unmounted for %.12s", request.name, request.id)
        self._on_use()
        return wire.encode_done()

    def path(self, request: wire.NameRequest) -> bytes:
        """Return the folder of a volume."""
        return wire.encode_mountpoint(self._mount.path(self._find(request.name).mountpoint))

    def get(self, request: wire.NameRequest) -> bytes:
        """Describe one volume, also without the scheduler: the Engine takes an error for "no such volume"."""
        try:
            return wire.encode_volume(self._describe(self._find(request.name)))
        except SchedulerUnavailable as error:
            folder = self._mount.folder(request.name)
            if folder is None:
                raise
            status = {"state": "unknown", "reason": str(error)}
            mountpoint = self._mount.path(str(folder))
            return wire.encode_volume(wire.Volume(request.name, mountpoint, _date(folder.stat().st_ctime), status))

    def list(self) -> bytes:
        """Describe all volumes."""
        containers = self._scheduler.list_containers()
        return wire.encode_volumes([self._describe(each) for each in containers if not each.injected])

    def _find(self, name: str) -> Container:
        container = self._scheduler.find_container(name)
        # What `convgpu-runtime` registered is no volume: who may remove volumes would take its limit away.
        if container is None or container.injected:
            raise UnknownVolume(name)
        return container

    def _describe(self, container: Container) -> wire.Volume:
        status = {
            "state": container.state,
            "container": container.engine and asdict(container.engine),
            "mounts": container.mounts,
            "processes": len(container.sessions),
            "waiting": len(container.waiting),
            "devices": [_share(device) for device in container.devices],
        }
        mountpoint = self._mount.path(container.mountpoint)
        return wire.Volume(container.name, mountpoint, _date(container.created), status)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0).isoformat()


def _share(device: Share) -> dict[str, object]:
    return {
        "uuid": device.uuid,
        "limit": format_size(device.limit),
        "grant": format_size(device.grant),
        "usage": format_size(device.usage),
        "limit_bytes": device.limit,
        "grant_bytes": device.grant,
        "usage_bytes": device.usage,
    }
