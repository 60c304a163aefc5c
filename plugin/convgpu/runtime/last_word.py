"""What must be true of the final specification of a container that gets a GPU and carries a ConvGPU volume. Pure.

The Engine asks nobody when a restart policy starts a container again, and what was judged once can have been changed
since. The OCI runtime sees each start.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from convgpu.protocol.layout import LIBRARY_PATH, MOUNT_PATH, PRELOAD_FILE, PRELOAD_PATH
from convgpu.runtime.oci_config import variables
from convgpu.runtime.paths import is_at_or_below, normal

# With these a program would find another scheduler, or load a library before the hook.
_VARIABLES: Final = ("CONVGPU_SOCKET", "LD_AUDIT")
_SEPARATORS: Final = re.compile(r"[ :]")


class HookUndone(ValueError):  # noqa: N818 - the state of a container
    """A container would get a GPU, and its programs would not be limited; the text is for the user."""


def refuse_variables(config: Mapping[str, Any]) -> None:
    """Check that no variable leads programs past the hook. Raises HookUndone."""
    for name in _VARIABLES:
        if name in variables(config):
            raise HookUndone(f"{name} would lead programs past the hook that limits GPU memory: leave the variable out")


def refuse_undone(config: Mapping[str, Any], directory: str) -> None:
    """Check that programs load the hook from the volume at MOUNT_PATH, and that nothing lies over it.

    Args:
        config: of the OCI bundle; its volume's source was checked.
        directory: of the scheduler, as sources of mounts name it.

    Raises:
        HookUndone: they would not.
    """
    mounts = config.get("mounts") or ()
    if not (_loads_first(variables(config).get("LD_PRELOAD")) or _loads_by_file(mounts, directory)):
        raise HookUndone(
            "this container has a GPU and a ConvGPU volume, and its programs would not load the hook: "
            f"give it -e LD_PRELOAD={LIBRARY_PATH} (other libraries behind it, with a colon)"
        )
    targets = [normal(str(mount.get("destination"))) for mount in mounts]
    place = targets.index(MOUNT_PATH)
    for position, target in enumerate(targets):
        is_over = is_at_or_below(MOUNT_PATH, target) and position > place
        if position != place and (is_over or is_at_or_below(target, MOUNT_PATH)):
            raise HookUndone(f"the mount at {target} lies over the ConvGPU volume at {MOUNT_PATH}: mount it elsewhere")


def _loads_first(preload: str | None) -> bool:
    return preload is not None and _SEPARATORS.split(preload.strip(" :"))[0] == LIBRARY_PATH


def _loads_by_file(mounts: Sequence[Mapping[str, Any]], directory: str) -> bool:
    files = [mount for mount in mounts if normal(str(mount.get("destination"))) == PRELOAD_PATH]
    return bool(files) and all(_is_ours(str(mount.get("source")), directory) for mount in files)


def _is_ours(source: str, directory: str) -> bool:
    return source.startswith(f"{directory}/") and source.endswith(f"/{PRELOAD_FILE}")
