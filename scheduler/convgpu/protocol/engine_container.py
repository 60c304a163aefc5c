"""A container as the Engine lists it, and those of its labels that ConvGPU shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

USER: Final = "convgpu.user"
"""Label with the user's name; `convgpu run` sets it."""
_TOOLS: Final = ("com.docker.", "org.opencontainers.", "org.label-schema.", "desktop.docker.")
_SHOWN: Final = ("com.docker.compose.project", "com.docker.compose.service")
_MOST: Final = 16
_LENGTH: Final = 128  # characters of a key and of a value


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """A container in the Engine; `labels` are those that are shown.

    A plain dataclass in a module of its own: rows of the database hold it, and `convgpu run` does without msgspec.
    """

    id: str
    name: str
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def shown_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that are shown: few and short ones, in order, without what tools and images note."""
    kept = sorted(key for key in labels if key in _SHOWN or not key.startswith(_TOOLS))
    first = sorted(kept, key=lambda key: key != USER)[:_MOST]
    return {key[:_LENGTH]: str(labels[key])[:_LENGTH] for key in first}
