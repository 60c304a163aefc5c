"""Where the commands get what they show: the scheduler, and the Engine's names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from convgpu.cli.connect.engine import Engine, EngineContainer
from convgpu.cli.connect.scheduler import DaemonDoor, PluginDoor, Scheduler
from convgpu.cli.show.container_rows import Listed, join
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.records import Container

_DAEMON_TIME = 2.0  # seconds for a daemon without Docker, which runs or does not


def open_scheduler(directory: Path | None, driver: str) -> Scheduler:
    """Return the scheduler of the plugin `driver`, or with a directory the one that works there."""
    if directory is not None:
        return Scheduler(DaemonDoor(directory, _DAEMON_TIME))
    return Scheduler(PluginDoor(Engine.connect().plugin(driver).socket))


def list_containers(scheduler: Scheduler, directory: Path | None) -> tuple[Listed, ...]:
    """Return the scheduler's containers with the Engine's names."""
    found = scheduler.containers()
    return join(found, engine_names(found, directory))


def engine_names(containers: Sequence[Container], directory: Path | None) -> Mapping[str, tuple[EngineContainer, ...]]:
    """Ask the Engine only if the scheduler does not know all names already.

    A scheduler without Docker goes on without: its containers go by the names they were created with.
    """
    if all(container.engine is not None for container in containers):
        return {}
    try:
        return Engine.connect().containers()
    except Unavailable:
        if directory is None:
            raise
        return {}


def find(listed: Sequence[Listed], word: str) -> Listed:
    """Return the container that a user means: by its name, the start of its id, or its volume.

    Raises:
        Refused: there is none, or more than one.
    """
    exact = [entry for entry in listed if word in entry.names]
    found = exact or [entry for entry in listed if entry.starts_with(word)]
    if len(found) > 1:
        names = ", ".join(entry.name for entry in found)
        raise Refused(f"{word!r} could be any of these containers: {names}.\nName one of them.")
    if not found:
        next_step = "See which there are: convgpu ps" if listed else "Start one: convgpu run --gpu-memory 2g IMAGE"
        raise Refused(f"there is no container {word!r} with a ConvGPU volume.\n{next_step}")
    return found[0]
