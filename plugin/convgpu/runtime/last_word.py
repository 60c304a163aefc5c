"""What must be true of the final specification of a container that gets a GPU and carries a ConvGPU volume. Pure.

The Engine asks nobody when a restart policy starts a container again, and what was judged once can have been changed
since. The OCI runtime sees each start.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from convgpu.protocol.layout import LIBRARY_PATH, MOUNT_PATH, PRELOAD_FILE, PRELOAD_PATH
from convgpu.runtime.devices import Source
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


def refuse_moved(place: str, leads: str) -> None:
    """Check that a place of the hook is where its name says. Raises HookUndone.

    Args:
        place: the path by which programs know it.
        leads: where it lies in the container's root file system.
    """
    if leads != place:
        raise HookUndone(
            f"{place} leads to {leads} in this container, where the hook could be taken away: use an image in which "
            f"no folder on the way to {place} is a link"
        )


def refuse_undone(
    config: Mapping[str, Any], directory: str, targets: Sequence[str], open_source: Callable[[str], Source] = Source
) -> None:
    """Check that programs load the hook from the volume at MOUNT_PATH, and that nothing lies over it.

    Args:
        config: of the OCI bundle; its volume's source was checked.
        directory: of the scheduler, as sources of mounts name it.
        targets: where its mounts lie, with links in its root file system followed.
        open_source: returns what the source of a mount really is.

    Raises:
        HookUndone: they would not.
    """
    mounts = config.get("mounts") or ()
    by_variable = _loads_first(variables(config).get("LD_PRELOAD"))
    files = [mount for mount in mounts if normal(str(mount.get("destination"))) == PRELOAD_PATH]
    if not by_variable and not (files and all(_is_ours(mount, directory, open_source) for mount in files)):
        raise HookUndone(
            "this container has a GPU and a ConvGPU volume, and its programs would not load the hook: "
            f"give it -e LD_PRELOAD={LIBRARY_PATH} (other libraries behind it, with a colon)"
        )
    place = [normal(str(mount.get("destination"))) for mount in mounts].index(MOUNT_PATH)
    refuse_moved(MOUNT_PATH, targets[place])
    if not by_variable:
        refuse_moved(PRELOAD_PATH, targets[mounts.index(files[-1])])
    for position, target in enumerate(targets):
        is_over = is_at_or_below(MOUNT_PATH, target) and position > place
        if position != place and (is_over or is_at_or_below(target, MOUNT_PATH)):
            raise HookUndone(f"the mount at {target} lies over the ConvGPU volume at {MOUNT_PATH}: mount it elsewhere")


def _loads_first(preload: str | None) -> bool:
    return preload is not None and _SEPARATORS.split(preload.strip(" :"))[0] == LIBRARY_PATH


def _is_ours(mount: Mapping[str, Any], directory: str, open_source: Callable[[str], Source]) -> bool:
    source = normal(open_source(str(mount.get("source"))).path)
    return source.startswith(f"{directory}/") and source.endswith(f"/{PRELOAD_FILE}")
