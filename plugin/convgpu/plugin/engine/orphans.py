"""Orphaned volumes: made for one container and outliving it. Swarm never removes those of its tasks.

They are removed through the Engine, which refuses while a container has them and forgets them together with us. A name
that a person chose stays: the next `docker run -v NAME:...` would get a volume of another driver, without any limit.
"""

import logging
import re
from collections.abc import Iterable
from operator import methodcaller
from typing import Final

from docker.errors import NotFound

from convgpu.plugin.engine.client import Engine, EngineUnavailable
from convgpu.protocol.records import Container
from convgpu.protocol.requests import ReportEngineList

_log: Final = logging.getLogger(__name__)

# An anonymous volume's name, and the id of a task, which `{{.Task.ID}}` or `{{.Task.Name}}` put into a name.
_FOR_ONE: Final = re.compile(r"[0-9a-f]{64}|(?:.*[^0-9A-Za-z])?[0-9a-z]{25}(?:[^0-9A-Za-z].*)?")


def find_orphans(containers: Iterable[Container], listed: ReportEngineList, keep: float) -> list[str]:
    """Return the volumes that nobody needs.

    Args:
        containers: that the scheduler knew before the Engine was asked.
        listed: what the Engine lists.
        keep: seconds that a volume stays after its last use.
    """
    used = {name for row in listed.containers for name in row.volumes}
    return [
        container.name
        for container in containers
        if container.name not in used
        and _FOR_ONE.fullmatch(container.name)
        and container.state in {"created", "ended"}
        and not container.sessions
        and max(container.created, container.since or 0.0) + keep < listed.asked
    ]


def remove_volumes(engine: Engine, names: Iterable[str]) -> None:
    """Have the Engine remove volumes; one that it keeps is tried again with the next list."""
    for name in names:
        try:
            engine.ask(methodcaller("remove_volume", name))
        except NotFound:
            _log.debug("volume %s is gone already", name)
        except EngineUnavailable as error:
            _log.warning("volume %s belongs to no container any more and stays: %s", name, error)
        else:
            _log.info("volume %s belonged to no container any more and is removed", name)
