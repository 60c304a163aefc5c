"""The labels of containers that ConvGPU sets and shows."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is not imported on the quick path of `convgpu run` (decision 143)
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

USER: Final = "convgpu.user"
"""Label with the user's name; `convgpu run` sets it."""
SHOWN: Final = 255
"""Characters of the names of containers and images that are shown; Docker bounds neither."""
_TOOLS: Final = ("com.docker.", "org.opencontainers.", "org.label-schema.", "desktop.docker.")
_SHOWN: Final = ("com.docker.compose.project", "com.docker.compose.service")
_MOST: Final = 16
_LENGTH: Final = 128  # characters of a key and of a value


def shown_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that are shown: few and short ones, in order, without what tools and images note."""
    kept = sorted(key for key in labels if key in _SHOWN or not key.startswith(_TOOLS))
    first = sorted(kept, key=lambda key: key != USER)[:_MOST]
    return {key[:_LENGTH]: str(labels[key])[:_LENGTH] for key in first}
