"""The meaning of each volume call: it is put to the scheduler, whose answers and refusals go back to the user."""

import hashlib
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from convgpu.plugin import api
from convgpu.plugin.scheduler import Scheduler, find_container, list_containers
from convgpu.protocol.admin import Container, DeviceUsage
from convgpu.protocol.sizes import format_size

_log: Final = logging.getLogger(__name__)

# Docker shows the scope and does nothing with it; a volume of ours exists on one host only.
SCOPE: Final = "local"


class UnknownVolume(LookupError):  # noqa: N818 - an answer
    """Docker asks for a volume that the scheduler does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no ConvGPU volume {name}")


class VolumeDriver:
    """Every call may come twice and changes nothing the second time; the scheduler sees to that.

    Args:
        scheduler: which is asked.
        directory: the scheduler's directory, for the mountpoint of a volume that is not being mounted.
    """

    def __init__(self, scheduler: Scheduler, directory: Path) -> None:
        self._scheduler = scheduler
        self._directory = directory

    def create(self, request: api.CreateRequest) -> bytes:
        """Reserve nothing yet: the scheduler checks the options and keeps them."""
        self._scheduler.request("create", name=request.name, options=dict(request.options))
        _log.info("volume %s created with %s", request.name, dict(request.options))
        return api.encode_done()

    def remove(self, request: api.NameRequest) -> bytes:
        """Forget a volume that is not mounted."""
        self._scheduler.request("remove", name=request.name)
        _log.info("volume %s removed", request.name)
        return api.encode_done()

    def mount(self, request: api.MountRequest) -> bytes:
        """A container starts, or `docker cp` looks into one: the scheduler counts them by id."""
        mountpoint = self._scheduler.request("mount", name=request.name, id=request.id).get("mountpoint")
        if not isinstance(mountpoint, str):
            raise TypeError(f"the scheduler named no mountpoint for volume {request.name}")
        _log.info("volume %s mounted for %.12s", request.name, request.id)
        return api.encode_mountpoint(mountpoint)

    def unmount(self, request: api.MountRequest) -> bytes:
        """A container ended, or `docker cp` is done."""
        self._scheduler.request("unmount", name=request.name, id=request.id)
        _log.info("volume %s unmounted for %.12s", request.name, request.id)
        return api.encode_done()

    def path(self, request: api.NameRequest) -> bytes:
        """Say where the volume lies."""
        return api.encode_mountpoint(self._mountpoint(self._find(request.name).name))

    def get(self, request: api.NameRequest) -> bytes:
        """Show one volume."""
        return api.encode_volume(self._describe(self._find(request.name)))

    def list(self) -> bytes:
        """Show all volumes."""
        return api.encode_volumes([self._describe(each) for each in list_containers(self._scheduler)])

    def capabilities(self) -> bytes:
        """Say what kind of volume driver this is."""
        return api.encode_capabilities(SCOPE)

    def _find(self, name: str) -> Container:
        container = find_container(self._scheduler, name)
        if container is None:
            raise UnknownVolume(name)
        return container

    def _describe(self, container: Container) -> api.Volume:
        created = datetime.fromtimestamp(container.created, UTC).replace(microsecond=0)
        status = {
            "state": container.state,
            "mounts": container.mounts,
            "devices": [_share(device) for device in container.devices],
        }
        return api.Volume(container.name, self._mountpoint(container.name), created.isoformat(), status)

    def _mountpoint(self, name: str) -> str:
        # The layout of docs/architecture.md; only `mount` has the scheduler name the directory.
        identifier = hashlib.sha256(name.encode()).hexdigest()[:16]
        return str(self._directory / "containers" / identifier)


def _share(device: DeviceUsage) -> dict[str, object]:
    return {
        "uuid": device.uuid,
        "limit": format_size(device.limit),
        "grant": format_size(device.grant),
        "usage": format_size(device.usage),
        "limit_bytes": device.limit,
        "grant_bytes": device.grant,
        "usage_bytes": device.usage,
    }
