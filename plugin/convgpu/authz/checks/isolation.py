"""Checks that no other container, and no program of the same one, can get at a hook and the memory it counts. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal

# The audit attributes a process to a container by such a name in the path of its cgroup.
_CONTAINER_ID: Final = re.compile("[0-9a-f]{64}")
_DEFAULT_PROFILES: Final = frozenset({"builtin", "docker-default"})


_NAMED_LIKE_AN_ID: Final = Refusal(
    "gpu-isolation",
    "a new ConvGPU volume with the name of a container's ID would take the place of that one's limit.\n"
    "Use another name.",
)


def volume_names(subject: Subject) -> Iterator[Refusal]:
    """Refuse new ConvGPU volumes whose names could be IDs of containers, by which injected limits are known."""
    for volume in () if subject.starts else subject.volumes:
        if volume.source not in subject.volume_limits:
            yield from volume_name(volume.source)


def volume_name(name: str) -> Iterator[Refusal]:
    """Refuse such a name; the Engine itself gives anonymous volumes theirs, of which nobody asks."""
    if _CONTAINER_ID.fullmatch(name):
        yield _NAMED_LIKE_AN_ID


def joined_processes(subject: Subject) -> Iterator[Refusal]:
    """Refuse any container, with or without a GPU, among the processes of one that has a hook."""
    if subject.joined:
        text = f"{subject.joined} has a GPU, whose limit its processes' neighbours could undo.\nLeave --pid out."
        yield Refusal("gpu-isolation", text)


def shared_namespaces(subject: Subject) -> Iterator[Refusal]:
    """Refuse namespaces and cgroups that a container with a hook shares with others."""
    if not subject.needs_hook:
        return
    container = subject.container
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


def weakened_isolation(subject: Subject) -> Iterator[Refusal]:
    """Refuse capabilities and profiles by which programs remove the hook from processes."""
    if not subject.needs_hook:
        return
    if "SYS_PTRACE" in subject.container.capabilities:
        yield Refusal("gpu-isolation", "with CAP_SYS_PTRACE a program can take the hook out of others.\nLeave it out.")
    for option in subject.container.security_options:
        name, _, profile = option.replace(":", "=", 1).partition("=")
        if name in {"seccomp", "apparmor"} and profile not in _DEFAULT_PROFILES:
            yield Refusal("gpu-isolation", f"with {option:.40} a program can remove the hook.\nLeave the option out.")
