"""What hands the host itself to a container: who has that can take any GPU, and can undo every limit."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from convgpu.authz.ports import HostDevicePort, HostFacts
from convgpu.authz.requests.container import ContainerSettings, MountSettings
from convgpu.authz.verdict import Refusal
from convgpu.protocol.layout import PRELOAD_PATH
from convgpu.runtime.paths import is_at_or_below, normal, touches

# With each of these a container's root can open devices that it was not given, or become root of the host.
_CAPABILITIES: Final = frozenset({"ALL", "BPF", "DAC_READ_SEARCH", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO"})

# Folders with sockets of daemons: a socket is reached through a read-only mount as well.
_SOCKETS: Final = ("/run/containerd", "/run/docker")
_ENGINE_SOCKET: Final = "/run/docker.sock"
# What writing to makes root of the host, or changes what the Engine, the plugin and the GPU's tools start with.
_WRITABLE: Final = (
    "/boot", "/etc/cdi", "/etc/convgpu", "/etc/cron.d", "/etc/docker", PRELOAD_PATH,
    "/etc/nvidia-container-runtime", "/etc/systemd", "/proc", "/run/cdi", "/sys", "/usr/bin", "/usr/lib/systemd",
    "/usr/sbin",
)  # fmt: skip
# Below the Engine's own folder.
_ROOT_SOCKETS: Final = ("plugins",)
_ROOT_WRITABLE: Final = ("containerd", "containers", "image", "overlay2")

# File systems that a volume of driver `local` may be: they come from other hosts, or begin empty.
_FOREIGN_TYPES: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "tmpfs"})

# What the Engine keeps from being written, if nobody says otherwise.
_READONLY_PATHS: Final = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})

_EXEMPTION: Final = "or have its image exempted in the rules of the site"


def find_host_access(container: ContainerSettings, facts: HostFacts, nodes: HostDevicePort) -> Iterator[Refusal]:
    """Return each way in which the container would get the host itself."""
    if container.privileged:
        yield Refusal(
            "privileged",
            "a privileged container has every device of the host, GPUs included, without a limit.\n"
            f"Give it what it needs (--device, --cap-add), {_EXEMPTION}.",
        )
    for name in sorted(container.capabilities & _CAPABILITIES):
        yield Refusal(
            "capability", f"with CAP_{name} a container can take any GPU of the host.\nLeave it out, {_EXEMPTION}."
        )
    if container.pid_mode == "host":
        yield Refusal(
            "host-pid", f"with --pid host a container can end ConvGPU's processes.\nLeave it out, {_EXEMPTION}."
        )
    if "/" in container.runtime:
        yield Refusal("runtime", f"--runtime {container.runtime} names a program: use the name of a configured one.")
    yield from _open_proc(container)
    for mount in container.mounts:
        yield from judge_mount(mount, facts, nodes)


def judge_mount(mount: MountSettings, facts: HostFacts, nodes: HostDevicePort) -> Iterator[Refusal]:
    """Return what is wrong with one bind mount, or with a volume that is one in disguise."""
    if mount.kind == "bind" and not is_preload_file(mount, facts):
        path = nodes.resolve(mount.source)
        found = _host_path(path, facts, read_only=mount.read_only)
        if found is not None:
            named = mount.source if normal(mount.source) == path else f"{mount.source} (which is {path})"
            yield _refuse_path("host-path", f"the mount of {named}", found)
    elif mount.kind == "volume" and mount.driver in {"", "local"} and mount.options:
        yield from judge_local_volume(mount.options, facts, nodes)


def is_preload_file(mount: MountSettings, facts: HostFacts) -> bool:
    """Tell whether a mount is that of the plugin's own file, which makes every program of a container load the hook."""
    file = rf"{re.escape(normal(facts.docker_root))}/plugins/[0-9a-f]{{64}}/propagated-mount/ld\.so\.preload"
    return (
        mount.kind == "bind"
        and mount.read_only
        and mount.target == PRELOAD_PATH
        and re.fullmatch(file, normal(mount.source)) is not None
    )


def judge_local_volume(options: Mapping[str, str], facts: HostFacts, nodes: HostDevicePort) -> Iterator[Refusal]:
    """Return what is wrong with the options of a volume of driver `local`."""
    kind, device = options.get("type", ""), options.get("device", "")
    words = options.get("o", "").split(",")
    if "bind" in words or "rbind" in words:
        path = nodes.resolve(device)
        read_only = "ro" in words and "rbind" not in words  # what is mounted below can be written
        found = _host_path(path, facts, read_only=read_only) if path.startswith("/") else path
        if found is not None:
            yield _refuse_path("host-path", f"the volume of {device}", found)
    elif (kind or device) and kind not in _FOREIGN_TYPES:
        yield Refusal(
            "local-volume",
            f"a volume of type={kind} with device={device} can show the host's own files or devices.\n"
            f"Use a volume without these options, {_EXEMPTION}.",
        )


def _open_proc(container: ContainerSettings) -> Iterator[Refusal]:
    paths = container.readonly_paths
    closed = paths is None or container.privileged or set(paths) >= _READONLY_PATHS
    words = {option.replace(":", "=", 1) for option in container.security_options}
    if not closed or words & {"systempaths=unconfined", "writable-cgroups=true"}:
        yield Refusal(
            "system-paths",
            "a container that can write /proc/sys or its cgroup can open any device of the host.\n"
            f"Leave systempaths=unconfined out, {_EXEMPTION}.",
        )


def _host_path(path: str, facts: HostFacts, *, read_only: bool) -> str | None:
    """Return what a path of the host shows that no container may have."""
    root = normal(facts.docker_root)
    sockets = [*_SOCKETS, *(f"{root}/{each}" for each in _ROOT_SOCKETS)]
    if not facts.local:
        sockets.append(_ENGINE_SOCKET)
    found = touches(path, sockets)
    if found is None and not read_only and not is_at_or_below(path, f"{root}/volumes"):
        found = touches(path, [*_WRITABLE, *(f"{root}/{each}" for each in _ROOT_WRITABLE)])
    return found


def _refuse_path(rule: str, what: str, found: str) -> Refusal:
    return Refusal(
        rule,
        f"{what} opens {found} of the host, by which any limit can be undone.\n"
        f"Mount a folder further down (a read-only one if it need not write), {_EXEMPTION}.",
    )
