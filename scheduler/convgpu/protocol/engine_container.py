"""A container as the Engine lists it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """A container in the Engine; `labels` are those that are shown.

    A plain dataclass in a module of its own: rows of the database hold it, and `convgpu run` does without msgspec.
    """

    id: str
    name: str
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)
