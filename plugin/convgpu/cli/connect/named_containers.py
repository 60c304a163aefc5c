"""The scheduler's containers with the names that people know them by, which are the Engine's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.terminal.errors import Refused, Unavailable, did_you_mean
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.labels import USER
from convgpu.protocol.records import Container

_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_ID_LENGTH: Final = 64
ENDED: Final = "ended"  # of `Container.state`
_MIN_ID: Final = 4  # characters of an id that are taken for its start


@dataclass(frozen=True, slots=True)
class NamedContainer:
    """A container of the scheduler, and the Engine's containers that have its volume (usually one)."""

    container: Container
    engine: tuple[EngineContainer, ...]

    @property
    def name(self) -> str:
        """The name for people: the Engine's, or else the volume's."""
        return ", ".join(entry.name for entry in self.engine) or shortened(self.container.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that means this container."""
        return (self.container.name, *(word for entry in self.engine for word in (entry.name, entry.id)))

    @property
    def image(self) -> str:
        """The image, or a dash where no Engine knows the volume."""
        return ", ".join(sorted({entry.image for entry in self.engine})) or "-"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that people gave it."""
        return {key: value for entry in self.engine for key, value in entry.labels.items()}

    @property
    def user(self) -> str:
        """The user who runs it, by its label; empty if it has none."""
        return self.labels.get(USER, "")

    @property
    def shown_id(self) -> str:
        """The ids of the Engine's containers as Docker shows them, or the volume's name."""
        return ", ".join(shortened(entry.id) for entry in self.engine) or shortened(self.container.name)

    def starts_with(self, word: str) -> bool:
        """Say whether the word is the beginning of an id of this container."""
        ids = [name for name in self.names if _is_id(name)]
        return len(word) >= _MIN_ID and any(name.startswith(word) for name in ids)


def _is_id(name: str) -> bool:
    return len(name) == _ID_LENGTH and _HEX_DIGITS.issuperset(name)


def shortened(name: str) -> str:
    """Return the first 12 characters of a name that the Engine made up, as Docker shows ids; others whole."""
    return name[:12] if _is_id(name) else name


def join(
    containers: Sequence[Container], engine: Mapping[str, tuple[EngineContainer, ...]]
) -> tuple[NamedContainer, ...]:
    """Return each container of the scheduler with its Engine containers, oldest first, then by name."""
    ordered = sorted(containers, key=lambda container: (container.created, container.name))
    return tuple(NamedContainer(container, _of_engine(container, engine)) for container in ordered)


def _of_engine(container: Container, engine: Mapping[str, tuple[EngineContainer, ...]]) -> tuple[EngineContainer, ...]:
    if container.name in engine or container.engine is None:
        return engine.get(container.name, ())
    return (container.engine,)


def list_containers(scheduler: Scheduler, directory: Path | None) -> tuple[NamedContainer, ...]:
    """Return the scheduler's containers with the Engine's names."""
    found = scheduler.containers()
    return join(found, engine_names(found, directory))


def engine_names(containers: Sequence[Container], directory: Path | None) -> Mapping[str, tuple[EngineContainer, ...]]:
    """Return the Engine's containers by volume; empty if the scheduler knows all names already.

    Without an Engine, containers of a `directory` are shown by the names of their volumes.
    """
    if all(container.engine is not None for container in containers):
        return {}
    try:
        return Engine.connect().containers()
    except Unavailable:
        if directory is None:
            raise
        return {}


def _newest(same: Sequence[NamedContainer]) -> list[NamedContainer]:
    """Return of containers with the same name those that have not ended, or else the one that was made last."""
    left = [entry for entry in same if entry.container.state != ENDED]
    return left or sorted(same, key=lambda entry: entry.container.created)[-1:]


def find(listed: Sequence[NamedContainer], word: str) -> NamedContainer:
    """Return the container that a user means: by its name, the start of its id, or its volume.

    A name comes again when its container is removed and its volume stays: then the newest is meant.

    Raises:
        Refused: there is none, or more than one.
    """
    exact = _newest([entry for entry in listed if word in entry.names])
    found = exact or [entry for entry in listed if entry.starts_with(word)]
    if len(found) > 1:
        names = ", ".join(f"{entry.name} ({entry.shown_id})" for entry in found)
        raise Refused(f"{word!r} could be any of these containers: {names}.\nName one of them.")
    if not found:
        next_step = "See which there are: convgpu ps" if listed else "Start one: convgpu run --gpu-memory 2g IMAGE"
        alike = did_you_mean(word, (engine.name for entry in listed for engine in entry.engine))
        raise Refused(f"there is no container {word!r} with a ConvGPU volume.{alike}\n{next_step}")
    return found[0]
