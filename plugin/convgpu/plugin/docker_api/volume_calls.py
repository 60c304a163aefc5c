"""Docker's volume calls: decode, ask the driver, encode. Whatever happens there is an answer, and it is Docker's."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from convgpu.client.admin import SchedulerRefused, SchedulerUnavailable
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.volume_driver import UnknownVolume, VolumeDriver

_log: Final = logging.getLogger(__name__)

Handler = Callable[[bytes], bytes]


class DockerCalls:
    """The calls by their paths.

    Args:
        driver: gives them their meaning.
    """

    def __init__(self, driver: VolumeDriver) -> None:
        self._handlers: Mapping[str, Handler] = {
            wire.ACTIVATE: lambda _: wire.encode_activated(),
            wire.CREATE: lambda raw: driver.create(wire.decode_create(raw)),
            wire.REMOVE: lambda raw: driver.remove(wire.decode_name(raw)),
            wire.MOUNT: lambda raw: driver.mount(wire.decode_mount(raw)),
            wire.UNMOUNT: lambda raw: driver.unmount(wire.decode_mount(raw)),
            wire.PATH: lambda raw: driver.path(wire.decode_name(raw)),
            wire.GET: lambda raw: driver.get(wire.decode_name(raw)),
            # These two have nothing to say, so an empty body costs nothing.
            wire.LIST: lambda _: driver.list(),
            wire.CAPABILITIES: lambda _: driver.capabilities(),
        }
        self.paths: Final = tuple(self._handlers)

    def answer(self, path: str, raw: bytes) -> tuple[int, bytes]:
        """Return the status and the body that answer the body of one call; the Engine shows the text of a failure."""
        try:
            return 200, self._handlers[path](raw)
        except Exception as error:
            return 500, wire.encode_error(_explain(path, error))


def _explain(path: str, error: Exception) -> str:
    if not isinstance(error, SchedulerRefused | SchedulerUnavailable | wire.Malformed | UnknownVolume):
        _log.error("%s failed", path, exc_info=error)
        return "the plugin failed; its log says why"
    # The Engine asks for volumes of other drivers as well, so an unknown one is nothing to report.
    level = logging.DEBUG if isinstance(error, UnknownVolume) else logging.WARNING
    _log.log(level, "%s refused: %s", path, error)
    return str(error)
