"""All calls of the Engine: one table, and one function that answers each of them, in whichever thread.

A call that needs neither scheduler nor judge has its answer at once (`answer_at_once`), in the thread that waits for
connections; `answer` gives the same one.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from convgpu.client.scheduler import SchedulerRefused, SchedulerUnavailable
from convgpu.plugin import log_setup
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.authorization import Authorizer, pass_at_once
from convgpu.plugin.docker_api.volume_driver import SCOPE, UnknownVolume, VolumeDriver

_log: Final = logging.getLogger(__name__)

Handler = Callable[[bytes], bytes]
Measure = Callable[[str], AbstractContextManager[object]]
_CAPABILITIES: Final = wire.encode_capabilities(SCOPE)


class EngineCalls:
    """The Engine's calls by their paths.

    Args:
        driver: answers volume calls.
        authorizer: answers `AuthZReq`.
        measure: returns the context in which a call is answered, by its path; it measures the duration.
    """

    def __init__(self, driver: VolumeDriver, authorizer: Authorizer, measure: Measure) -> None:
        self._handlers: Mapping[str, Handler] = {
            wire.ACTIVATE: lambda _: wire.encode_activated(),
            wire.CREATE: lambda raw: driver.create(wire.decode_create(raw)),
            wire.REMOVE: lambda raw: driver.remove(wire.decode_name(raw)),
            wire.MOUNT: lambda raw: driver.mount(wire.decode_mount(raw)),
            wire.UNMOUNT: lambda raw: driver.unmount(wire.decode_mount(raw)),
            wire.PATH: lambda raw: driver.path(wire.decode_name(raw)),
            wire.GET: lambda raw: driver.get(wire.decode_name(raw)),
            # The bodies of these two say nothing, so an empty one is as good.
            wire.LIST: lambda _: driver.list(),
            wire.CAPABILITIES: lambda _: _CAPABILITIES,
            wire.AUTHORIZE_REQUEST: authorizer.answer,
            wire.AUTHORIZE_RESPONSE: authorizer.note,
        }
        self._measure = measure
        self._authorizer = authorizer
        self.paths: Final = frozenset(self._handlers)

    def answer(self, path: str, raw: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer to one call; the Engine shows the text of a failure."""
        log_setup.begin_request(path)
        try:
            with self._measure(path):
                return 200, self._handlers[path](raw)
        except Exception as error:
            return 500, wire.encode_error(_explain(path, error))
        finally:
            log_setup.end_request()

    @property
    def is_strict(self) -> bool:
        """Whether every call of the Engine's API is judged that is not open to everybody."""
        return self._authorizer.is_strict


def answer_at_once(path: str, raw: bytes, *, strict: bool = False) -> bytes | None:
    """Return the answer to a call that needs neither scheduler nor judge, else None. Never waits.

    The Engine asks for the capabilities a dozen times for each container with a volume; the answer never changes.
    """
    return _CAPABILITIES if path == wire.CAPABILITIES else pass_at_once(path, raw, strict=strict)


def _explain(path: str, error: Exception) -> str:
    if not isinstance(error, SchedulerRefused | SchedulerUnavailable | wire.Malformed | UnknownVolume):
        _log.error("%s failed", path, exc_info=error)
        return "the plugin failed; its log says why"
    # The Engine asks for volumes of other drivers as well, so an unknown one is no warning.
    level = logging.DEBUG if isinstance(error, UnknownVolume) else logging.WARNING
    _log.log(level, "%s refused: %s", path, error)
    return str(error)
