"""Recognizes the mounts by which every program of a container loads the hook. Pure."""

import re

from convgpu.authz.ports import HostFacts
from convgpu.authz.requests.container import MountSettings
from convgpu.authz.subject.subject import Subject
from convgpu.protocol.layout import MOUNT_PATH, PRELOAD_FILE, PRELOAD_PATH
from convgpu.runtime.paths import normal


def is_preload_file(mount: MountSettings, host: HostFacts) -> bool:
    """Tell whether a mount puts the plugin's own file, read-only, at /etc/ld.so.preload."""
    # Another plugin's folder could hold a file of that name: only ours will do, where the Engine says which it is.
    plugin = re.escape(host.plugin_id) or "[0-9a-f]{64}"
    file = rf"{re.escape(normal(host.docker_root))}/plugins/{plugin}/propagated-mount/{re.escape(PRELOAD_FILE)}"
    return (
        mount.kind == "bind"
        and mount.read_only
        and mount.target == PRELOAD_PATH
        and re.fullmatch(file, normal(mount.source)) is not None
    )


def preload_mounts(subject: Subject) -> list[MountSettings]:
    """Return the mounts of our file at /etc/ld.so.preload, by the plugin's file or by a part of a ConvGPU volume."""
    files = [mount for mount in subject.container.mounts if is_preload_file(mount, subject.host)]
    return files + [mount for mount in subject.volumes if _is_preload_subpath(mount)]


def loads_by_file(subject: Subject) -> bool:
    """Tell whether our file at /etc/ld.so.preload loads the hook, whatever LD_PRELOAD says."""
    if not any(mount.target == MOUNT_PATH and not mount.subpath for mount in subject.volumes):
        return False
    return bool(preload_mounts(subject))


def _is_preload_subpath(mount: MountSettings) -> bool:
    return mount.target == PRELOAD_PATH and mount.subpath == PRELOAD_FILE
