"""What a container with a GPU must have, and must not do, so that the hook keeps its limit."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from convgpu.authz.checks.host import is_preload_file
from convgpu.authz.ports import HostFacts
from convgpu.authz.requests.container import LIMIT_DEVICE, ContainerSettings, MountSettings
from convgpu.authz.verdict import Refusal
from convgpu.protocol.layout import LIBRARY_FILE, LIBRARY_PATH, MOUNT_PATH, PRELOAD_FILE, PRELOAD_PATH
from convgpu.runtime.paths import is_at_or_below, normal, touches

# By these a program would find another scheduler, or none.
_VARIABLES: Final = ("CONVGPU_SOCKET", "LD_AUDIT")
# What the dynamic linker reads before it loads the hook.
_LINKER: Final = ("/etc/ld.so.cache", "/lib", "/lib64", "/usr/lib", "/usr/lib64")

# The name of `convgpu-runtime` in daemon.json.
RUNTIME: Final = "convgpu"

_SEPARATORS: Final = re.compile(r"[ :]")
# By such a name in the path of its cgroup the audit knows to which container a process belongs.
_CONTAINER_ID: Final = re.compile("[0-9a-f]{64}")


def covering_limit(container: ContainerSettings, facts: HostFacts) -> tuple[bool, str | None]:
    """Tell whether a container is covered below the Engine, by our runtime or our CDI device, and with which limit.

    Of several CDI devices the runtime takes one, so the limit names them all, with commas between.
    """
    names = [name.removeprefix(LIMIT_DEVICE) for name in container.cdi_names if name.startswith(LIMIT_DEVICE)]
    if names:
        return True, ",".join(names)
    covered = (container.runtime or facts.default_runtime) == RUNTIME
    return covered, container.environment.get("CONVGPU_MEMORY") or (facts.runtime_memory if covered else None)


def find_holes_in_cover(container: ContainerSettings) -> Iterator[Refusal]:
    """Return each way in which a container with a GPU would escape a hook that is put in below the Engine."""
    place = MountSettings("volume", "", MOUNT_PATH)
    yield from _find_variables(container)
    yield from _find_covers(container, [place], [])
    yield from _not_isolated(container)


def same_plugin(given: str, driver: str) -> bool:
    """Tell whether two names mean the same plugin; a tag that is left out is `latest`, as for the Engine."""
    return bool(given) and _with_tag(given) == _with_tag(driver)


def loads_hook(environment: str | None, target: str) -> bool:
    """Tell whether a value of LD_PRELOAD loads the hook from `target`, before anything else."""
    return environment is not None and _SEPARATORS.split(environment.strip(" :"))[0] == f"{target}/{LIBRARY_FILE}"


def find_holes(container: ContainerSettings, ours: Sequence[MountSettings], facts: HostFacts) -> Iterator[Refusal]:
    """Return each way in which a container with a GPU and volumes of ours would escape the hook.

    Args:
        container: with a GPU.
        ours: its ConvGPU volumes; at least one.
        facts: about the host.
    """
    preload = [mount for mount in container.mounts if is_preload_file(mount, facts)]
    preload += [mount for mount in ours if _is_preload_subpath(mount)]
    if not loads_by_file(container, ours, facts):
        yield from _not_loaded(container, ours)
    yield from _find_variables(container)
    yield from _find_covers(container, ours, preload)
    yield from _second_limit(container, ours, facts)
    yield from _not_isolated(container)


def loads_by_file(container: ContainerSettings, ours: Sequence[MountSettings], facts: HostFacts) -> bool:
    """Tell whether a file of ours at /etc/ld.so.preload loads the hook, whatever LD_PRELOAD says."""
    if not any(mount.target == MOUNT_PATH and not mount.subpath for mount in ours):
        return False
    return any(map(_is_preload_subpath, ours)) or any(is_preload_file(mount, facts) for mount in container.mounts)


def find_variables(rows: Sequence[str], targets: Sequence[str], *, by_file: bool = False) -> Iterator[Refusal]:
    """Return what is wrong with the environment of `docker exec` in a container with a hook.

    Args:
        rows: `NAME=VALUE`, or `NAME` for one that is taken away.
        targets: folders of the container in which the hook lies.
        by_file: it is loaded without LD_PRELOAD as well.
    """
    for row in rows:
        name, equals, value = row.partition("=")
        loaded = by_file or (bool(equals) and any(loads_hook(value, target) for target in targets))
        if name == "LD_PRELOAD" and not loaded:
            first = f"-e LD_PRELOAD={targets[0]}/{LIBRARY_FILE}:..."
            yield Refusal("hook-not-loaded", f"the hook must come first: leave LD_PRELOAD out, or type {first}")
        elif name in _VARIABLES:
            yield Refusal("hook-environment", f"{name} would lead programs past the hook.\nLeave the variable out.")


def is_in_our_paths(path: str, targets: Sequence[str]) -> bool:
    """Tell whether an archive that is unpacked at `path` could replace what the hook needs."""
    return touches(path, [*map(normal, targets), PRELOAD_PATH]) is not None


def how_to_limit(gpu: str, name: str) -> Refusal:
    """Return the refusal of a GPU without a ConvGPU volume, with the line to type."""
    mount = f"--mount type=volume,volume-driver={name},volume-opt=memory=2g,dst={MOUNT_PATH}"
    return Refusal(
        "gpu-needs-limit",
        f"the container asks for a GPU ({gpu}) and carries no ConvGPU volume, so nothing limits its GPU memory.\n"
        f"Type: docker run --gpus all {mount} -e LD_PRELOAD={LIBRARY_PATH} IMAGE"
        f"  or: convgpu run --gpu-memory 2g IMAGE",
    )


def _not_loaded(container: ContainerSettings, ours: Sequence[MountSettings]) -> Iterator[Refusal]:
    preload = container.environment.get("LD_PRELOAD")
    folders = [mount.target for mount in ours if not mount.subpath]
    if any(loads_hook(preload, target) for target in folders):
        return
    target = folders[0] if folders else MOUNT_PATH
    yield Refusal(
        "hook-not-loaded",
        "the container has a ConvGPU volume, but programs in it would not load the hook, so nothing keeps the limit.\n"
        f"Type: -e LD_PRELOAD={target}/{LIBRARY_FILE}  (other libraries behind it, with a colon)",
    )


def _find_variables(container: ContainerSettings) -> Iterator[Refusal]:
    for name in _VARIABLES:
        if name in container.environment:
            yield Refusal("hook-environment", f"{name} would lead programs past the hook.\nLeave the variable out.")


def _is_preload_subpath(mount: MountSettings) -> bool:
    return mount.target == PRELOAD_PATH and mount.subpath == PRELOAD_FILE


def _find_covers(
    container: ContainerSettings, ours: Sequence[MountSettings], preload: Sequence[MountSettings]
) -> Iterator[Refusal]:
    whole = [mount for mount in ours if not mount.subpath]  # a part of a volume can lie over the whole of another
    for mount in container.mounts:
        if mount not in whole and mount not in preload and (covered := _covers(mount, whole)) is not None:
            yield Refusal(
                "hook-shadowed",
                f"the {mount.kind} mount at {mount.target} lies over {covered}, which the hook needs.\n"
                "Mount it elsewhere.",
            )


def _covers(mount: MountSettings, ours: Sequence[MountSettings]) -> str | None:
    target = normal(mount.target)
    for mine in ours:
        # A mount above is made first, so ours lies over it.
        if is_at_or_below(target, normal(mine.target)):
            return mine.target
    if target == PRELOAD_PATH:
        return PRELOAD_PATH
    return touches(target, _LINKER)


def _second_limit(container: ContainerSettings, ours: Sequence[MountSettings], facts: HostFacts) -> Iterator[Refusal]:
    # A device of ours mounts its folder over a volume; our runtime takes a volume for its own if it lies there.
    device = any(name.startswith(LIMIT_DEVICE) for name in container.cdi_names)
    covered, _ = covering_limit(container, facts)
    if device or (covered and not any(mount.target == MOUNT_PATH and not mount.subpath for mount in ours)):
        yield Refusal(
            "hook-shadowed",
            f"beside the ConvGPU volume the {'CDI device' if device else 'runtime convgpu'} would set another limit.\n"
            f"Leave one of them out{'' if device else f', or mount the volume at {MOUNT_PATH}'}.",
        )


def _not_isolated(container: ContainerSettings) -> Iterator[Refusal]:
    if container.ipc_mode == "host" or container.ipc_mode.startswith("container:"):
        yield Refusal(
            "gpu-isolation",
            f"with --ipc {container.ipc_mode} containers share GPU memory past their limits.\n"
            "Type: --shm-size 8g  (for PyTorch's data loaders, for instance)",
        )
    if container.pid_mode.startswith("container:"):
        yield Refusal(
            "gpu-isolation",
            f"with --pid {container.pid_mode} the processes there could take the hook out of this container's.\n"
            "Leave it out.",
        )
    if _CONTAINER_ID.search(container.cgroup_parent):
        yield Refusal(
            "gpu-isolation",
            "with a --cgroup-parent that is named after a container, its memory would count for that one.\n"
            "Name another.",
        )
    if container.userns_mode == "host":
        yield Refusal("gpu-isolation", "with --userns host the container can change the hook.\nLeave it out.")
    if "SYS_PTRACE" in container.capabilities:
        yield Refusal("gpu-isolation", "with CAP_SYS_PTRACE a program can take the hook out of others.\nLeave it out.")
    for option in container.security_options:
        name, _, value = option.replace(":", "=", 1).partition("=")
        if name in {"seccomp", "apparmor"} and value not in {"builtin", "docker-default"}:
            yield Refusal("gpu-isolation", f"with {option:.40} a program can cover the hook.\nLeave the option out.")


def _with_tag(name: str) -> str:
    # A colon before the last slash belongs to a registry's port.
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def unpacked_at(path: str) -> str:
    """Return the folder in the container that the Engine unpacks at; it takes a relative path from the root."""
    return normal("/" + path)
