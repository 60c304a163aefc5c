"""Checks of access to the host itself, by which a container could take any GPU and undo every limit. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from convgpu.authz.checks.preload import is_preload_file
from convgpu.authz.requests.container import MountSettings
from convgpu.authz.subject.injection import RUNTIME
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal
from convgpu.protocol.layout import PRELOAD_PATH
from convgpu.runtime.paths import is_at_or_below, normal, touches

# With each of these a container's root can open devices that it was not given, or become root of the host.
_CAPABILITIES: Final = frozenset({"ALL", "BPF", "DAC_READ_SEARCH", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO"})

# Folders with sockets of daemons: a socket is reached through a read-only mount as well.
_SOCKETS: Final = ("/run/containerd", "/run/docker")
_ENGINE_SOCKET: Final = "/run/docker.sock"
# Whoever writes here becomes root of the host, or changes what the Engine, the plugin and the GPU's tools start with.
_WRITABLE: Final = (
    "/boot", "/etc/cdi", "/etc/convgpu", "/etc/cron.d", "/etc/docker", PRELOAD_PATH,
    "/etc/nvidia-container-runtime", "/etc/systemd", "/proc", "/run/cdi", "/sys", "/usr/bin", "/usr/lib/systemd",
    "/usr/sbin",
)  # fmt: skip
# Below the Engine's own folder.
_ROOT_SOCKETS: Final = ("plugins",)
_ROOT_WRITABLE: Final = ("containerd", "containers", "image", "overlay2")

# File systems of a volume of driver `local` that come from other hosts, or begin empty.
_FOREIGN_TYPES: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "tmpfs"})

# Paths that the Engine makes read-only by default.
_READONLY_PATHS: Final = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})
_WRITABLE_PROC: Final = frozenset({"systempaths=unconfined", "writable-cgroups=true"})

_EXEMPTION: Final = "or have its image exempted in the rules of the site"


def unknown_templates(subject: Subject) -> Iterator[Refusal]:
    """Refuse the mounts of a Swarm service whose paths are known only when a task starts."""
    for text in subject.container.opaque[:1]:
        yield Refusal(
            "service-template",
            f"what comes of {text:.60} is known only when a task starts, which is not judged.\n"
            "Of templates, use .Node.ID, .Node.Hostname, .Service.ID, .Service.Name, .Task.ID, .Task.Name and "
            ".Task.Slot.",
        )


def privileges(subject: Subject) -> Iterator[Refusal]:
    """Refuse privileges by which a container reaches every device or process of the host."""
    container = subject.container
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


def other_runtime(subject: Subject) -> Iterator[Refusal]:
    """Refuse a new container that may get a GPU another runtime than ours, where ours is the Engine's default.

    By the next start links may lead elsewhere, and a restart policy asks nobody: only our runtime judges each start.
    Containers from before it was the default start as they are, and strict rules list runtimes.
    """
    container, default = subject.container, subject.host.default_runtime
    if subject.starts or default != RUNTIME or container.runtime in {"", RUNTIME}:
        return
    may_get_gpu = subject.gpu is not None or bool(subject.volumes) or container.names_devices
    if may_get_gpu and subject.caller.rules.strict_list is None:
        yield Refusal(
            "runtime",
            f"--runtime {container.runtime:.60} starts it without {RUNTIME}-runtime, which judges each start here.\n"
            f"Leave it out (for a GPU: --gpus), {_EXEMPTION}.",
        )


def writable_proc(subject: Subject) -> Iterator[Refusal]:
    """Refuse options that make /proc/sys or the container's cgroup writable."""
    container = subject.container
    paths = container.readonly_paths
    protected = paths is None or container.privileged or set(paths) >= _READONLY_PATHS
    options = {option.replace(":", "=", 1) for option in container.security_options}
    if not protected or options & _WRITABLE_PROC:
        shown = "systempaths=unconfined" if options & _WRITABLE_PROC else f"ReadonlyPaths: {list(paths or ())}"
        yield Refusal(
            "system-paths",
            "a container that can write /proc/sys or its cgroup can open any device of the host.\n"
            f"Leave {shown:.80} out, {_EXEMPTION}.",
        )


def host_mounts(subject: Subject) -> Iterator[Refusal]:
    """Refuse bind mounts of the host's own folders, and volumes that are such bind mounts."""
    for mount in subject.container.mounts:
        if mount.kind == "bind" and not is_preload_file(mount, subject.host):
            yield from _bind_mount(mount, subject)
        elif mount.kind == "volume" and mount.driver in {"", "local"} and mount.options:
            yield from local_volume(mount.options, subject)


def local_volume(options: Mapping[str, str], subject: Subject) -> Iterator[Refusal]:
    """Refuse options of a volume of driver `local` that show the host's files or devices."""
    kind, device = options.get("type", ""), options.get("device", "")
    flags = options.get("o", "").split(",")
    if "bind" in flags or "rbind" in flags:
        path = subject.resolved[device]
        read_only = "ro" in flags and "rbind" not in flags  # mounts below a recursive bind stay writable
        protected = _find_protected(path, subject, read_only=read_only) if path.startswith("/") else path
        if protected is not None:
            yield _refuse_path(f"the volume of {device}", protected)
    elif (kind or device) and kind not in _FOREIGN_TYPES:
        yield Refusal(
            "local-volume",
            f"a volume of type={kind} with device={device} can show the host's own files or devices.\n"
            f"Use a volume without these options, {_EXEMPTION}.",
        )


def _bind_mount(mount: MountSettings, subject: Subject) -> Iterator[Refusal]:
    path = subject.resolved[mount.source]
    protected = _find_protected(path, subject, read_only=mount.read_only)
    if protected is not None:
        told = subject.caller.rules.strict_list is None and normal(mount.source) != path
        source = f"{mount.source} (which is {path})" if told else mount.source
        yield _refuse_path(f"the mount of {source}", protected)


def _find_protected(path: str, subject: Subject, *, read_only: bool) -> str | None:
    """Return the protected path of the host that a mounted path shows; None if it shows none."""
    root = normal(subject.host.docker_root)
    sockets = [*_SOCKETS, *(f"{root}/{name}" for name in _ROOT_SOCKETS)]
    if not subject.caller.is_local:
        sockets.append(_ENGINE_SOCKET)
    protected = touches(path, sockets)
    if protected is None and not read_only and not is_at_or_below(path, f"{root}/volumes"):
        protected = touches(path, [*_WRITABLE, *(f"{root}/{name}" for name in _ROOT_WRITABLE)])
    return protected


def _refuse_path(mount: str, protected: str) -> Refusal:
    return Refusal(
        "host-path",
        f"{mount} opens {protected} of the host, by which any limit can be undone.\n"
        f"Mount a folder further down (a read-only one if it need not write), {_EXEMPTION}.",
    )
