"""Checks that a container with a GPU has a limit, and that its programs load the hook which enforces it. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from convgpu.authz.checks.preload import loads_by_file, preload_mounts
from convgpu.authz.checks.slurm_job import SUBMIT
from convgpu.authz.requests.container import LIMIT_DEVICE, MountSettings
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal
from convgpu.protocol.layout import LIBRARY_FILE, LIBRARY_PATH, MOUNT_PATH, PRELOAD_PATH
from convgpu.runtime.gpu_requests import visible_devices
from convgpu.runtime.paths import is_at_or_below, normal, touches

# With these a program would find another scheduler, or load a library before the hook.
HOOK_VARIABLES: Final = ("CONVGPU_SOCKET", "LD_AUDIT")
# Read by the dynamic linker before it loads the hook.
_LINKER: Final = ("/etc/ld.so.cache", "/lib", "/lib64", "/usr/lib", "/usr/lib64")
_SEPARATORS: Final = re.compile(r"[ :]")


def checkpoint(subject: Subject) -> Iterator[Refusal]:
    """Refuse to restore a program, which would not load the hook."""
    if subject.gpu is not None and subject.checkpoint:
        yield Refusal("checkpoint", "a restored program would not load the hook.\nStart it without --checkpoint.")


def unlimited_gpu(subject: Subject) -> Iterator[Refusal]:
    """Refuse a GPU without a ConvGPU volume, runtime or CDI device, and name the line to type."""
    if subject.gpu is None or subject.needs_hook:
        return
    if subject.unsearched:
        yield Refusal(
            "gpu-needs-limit",
            f"--device {subject.unsearched:.200} has too many names, links or devices in it to tell whether a GPU is "
            "among them, so it counts as a GPU, which needs a limit.\n"
            "Name the devices themselves (--device FOLDER/DEVICE), or a folder with a few thousand names at most.",
        )
        return
    mount = f"--mount type=volume,volume-driver={subject.plugin},volume-opt=memory=2g,dst={MOUNT_PATH}"
    by_hand = f"Type: docker run --gpus all {mount} -e LD_PRELOAD={LIBRARY_PATH} IMAGE  or: convgpu run --gpu-memory 2g"
    yield Refusal(
        "gpu-needs-limit",
        f"the container asks for a GPU ({subject.gpu}) and carries no ConvGPU volume, so nothing limits its GPU "
        f"memory.\n{SUBMIT if subject.needs_job else f'{by_hand} IMAGE'}",
    )


def not_loaded(subject: Subject) -> Iterator[Refusal]:
    """Refuse a ConvGPU volume whose hook the container's programs would not load first."""
    if subject.gpu is None or not subject.volumes or loads_by_file(subject):
        return
    preload = subject.container.environment.get("LD_PRELOAD")
    folders = [mount.target for mount in subject.volumes if not mount.subpath]
    if any(loads_hook(preload, folder) for folder in folders):
        return
    folder = folders[0] if folders else MOUNT_PATH
    yield Refusal(
        "hook-not-loaded",
        "the container has a ConvGPU volume, but its programs would not load the hook, so nothing enforces the limit.\n"
        f"Type: -e LD_PRELOAD={folder}/{LIBRARY_FILE}  (other libraries behind it, with a colon)",
    )


def environment(subject: Subject) -> Iterator[Refusal]:
    """Refuse variables by which programs bypass the hook."""
    if subject.needs_hook:
        yield from (refuse_variable(name) for name in HOOK_VARIABLES if name in subject.container.environment)


def shadowing_mounts(subject: Subject) -> Iterator[Refusal]:
    """Refuse mounts over the hook, its preload file, or what the dynamic linker reads before it."""
    if not subject.needs_hook:
        return
    if subject.volumes:
        # A part of one of our volumes can be mounted over the whole of another.
        protected, own = [mount for mount in subject.volumes if not mount.subpath], preload_mounts(subject)
    else:
        protected, own = [MountSettings("volume", "", MOUNT_PATH)], []
    for mount in subject.container.mounts:
        if mount not in protected and mount not in own and (path := _find_shadowed(mount, protected)) is not None:
            yield Refusal(
                "hook-shadowed",
                f"the {mount.kind} mount at {mount.target} lies over {path}, which the hook needs.\n"
                "Mount it elsewhere.",
            )


def second_limit(subject: Subject) -> Iterator[Refusal]:
    """Refuse a limit that the runtime or a CDI device would inject beside a ConvGPU volume.

    A CDI device mounts its folder over the volume. The runtime leaves a volume at MOUNT_PATH alone. Nobody would count
    the other limit, so it is none either for a container that asks for no GPU: another one may hand it one over.
    """
    if not subject.would_inject or not subject.volumes or subject.injection is None:
        return
    at_mount_path = any(mount.target == MOUNT_PATH and not mount.subpath for mount in subject.volumes)
    if subject.injection.by_device:
        source, remedy = "CDI device", ""
    elif not at_mount_path:
        source, remedy = "runtime convgpu", f", or mount the volume at {MOUNT_PATH}"
    else:
        return
    yield Refusal(
        "hook-shadowed",
        f"beside the ConvGPU volume the {source} would set another limit.\nLeave one of them out{remedy}.",
    )


def hidden_limit(subject: Subject) -> Iterator[Refusal]:
    """Refuse a limit's CDI device where others than the Engine's driver `cdi` find it, so that nobody counts it.

    NVIDIA's runtime, behind ours, takes CDI devices of any vendor from its variables and from annotations; and from
    Engine 28.2 on the driver `nvidia` may lead names on to `cdi`.
    """
    names = (*subject.container.led_on, *visible_devices(subject.container.environment))
    if any(LIMIT_DEVICE in name for name in names):
        yield Refusal(
            "hook-shadowed",
            f"{LIMIT_DEVICE}... would set another limit than the one that counts.\n"
            f"Type: --device {LIMIT_DEVICE}2g, and leave it out of --gpus, NVIDIA_VISIBLE_DEVICES and annotations.",
        )


def loads_hook(preload: str | None, folder: str) -> bool:
    """Tell whether a value of LD_PRELOAD loads the hook from `folder`, before anything else."""
    return preload is not None and _SEPARATORS.split(preload.strip(" :"))[0] == f"{folder}/{LIBRARY_FILE}"


def refuse_variable(name: str) -> Refusal:
    """Return the refusal of a variable by which programs bypass the hook."""
    return Refusal("hook-environment", f"{name} would lead programs past the hook.\nLeave the variable out.")


def _find_shadowed(mount: MountSettings, protected: Sequence[MountSettings]) -> str | None:
    target = normal(mount.target)
    for volume in protected:
        # A mount further up is made first, so the volume lies over it.
        if is_at_or_below(target, normal(volume.target)):
            return volume.target
    return PRELOAD_PATH if target == PRELOAD_PATH else touches(target, _LINKER)
