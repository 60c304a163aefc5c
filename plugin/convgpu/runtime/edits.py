"""Injects the limit into a container without a ConvGPU volume: the same edits for the OCI runtime and for CDI. Pure.

The edits are a mount point at /run/convgpu, the preload file, and hooks (OCI runtime specification, config.md,
POSIX-platform Hooks). The hooks get the container's id: before the container's program starts they register the
container and mount its own folder over the mount point; after its end they remove it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from convgpu.protocol.layout import DRIVER_PATH, LIBRARY_PATH, MOUNT_PATH, PRELOAD_FILE, PRELOAD_PATH
from convgpu.runtime.devices import NVIDIA_MAJOR, Source
from convgpu.runtime.gpu_requests import IsGpuNumber, asks_for_gpu
from convgpu.runtime.last_word import refuse_moved, refuse_undone, refuse_variables
from convgpu.runtime.oci_config import read_device_settings, split_variables, variables
from convgpu.runtime.root_folder import RootFolder, text_destinations

# Variables of the container that stand for the options of a volume.
OPTIONS: Final[Mapping[str, str]] = {
    "CONVGPU_MEMORY": "memory",
    "CONVGPU_GPUS": "gpus",
    "CONVGPU_WAIT": "wait",
    "CONVGPU_PRIORITY": "priority",
    "CONVGPU_SUSPEND": "suspend",
    "CONVGPU_BACKING": "backing",
    "CONVGPU_ADMIT": "admit",
    "CONVGPU_GANG": "gang",
}
_HOOK: Final = ["convgpu-runtime", "hook"]  # how the arguments of our OCI hooks begin
_BEGINS: Final = [*_HOOK, "begin"]
# Seconds that a runtime waits for each hook.
_BEGIN_TIMEOUT: Final = 30
_END_TIMEOUT: Final = 15
# A GPU by index or UUID. NVIDIA_VISIBLE_DEVICES may hold other values: names of CDI devices, or the path of a list.
_VOLUME: Final = re.compile(r"(?:containers|volumes)/[0-9a-f]{16}")
_GPU: Final = re.compile(r"\d+|(?:GPU|MIG)-\S+")


class NoLimit(ValueError):  # noqa: N818 - the state of a container
    """A container would get a GPU and has no limit; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Host:
    """The host as the edits name it.

    Attributes:
        program: path of `convgpu-runtime`.
        directory: of the scheduler, as the host sees it.
        simulated: the CUDA driver comes with the container's folder.
        is_gpu: tells whether character devices of a major number, or of a major and a minor one, belong to a GPU.
        open_source: returns what the source of a mount really is.
        root: the container's root file system; without one, destinations are as their text says.
    """

    program: str
    directory: str
    simulated: bool
    is_gpu: IsGpuNumber = lambda major, _: major == NVIDIA_MAJOR
    open_source: Callable[[str], Source] = Source
    root: RootFolder | None = None

    def hook(self, command: str, timeout: int) -> dict[str, Any]:
        """Return a hook in the form of the OCI specification; `timeout` in seconds."""
        arguments = [*_HOOK, command, f"--convgpu-directory={self.directory}"]
        return {"path": self.program, "args": arguments, "timeout": timeout}

    @property
    def preload(self) -> str:
        """The file for /etc/ld.so.preload."""
        return f"{self.directory}/{PRELOAD_FILE}"


def volume_options(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a volume that a container's variables stand for."""
    environment = variables(config)
    options = {option: environment[name] for name, option in OPTIONS.items() if environment.get(name)}
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    names_gpus = all(_GPU.fullmatch(name.strip()) for name in visible.split(","))
    if names_gpus and "gpus" not in options and ":" not in options.get("memory", ""):
        options["gpus"] = visible
    return options


def uses_gpu(config: Mapping[str, Any], host: Host) -> bool:
    """Tell whether a container gets a GPU, as far as its bundle tells."""
    return asks_for_gpu(read_device_settings(config, host.is_gpu, host.open_source), host.is_gpu)


def inject_limit(config: Mapping[str, Any], host: Host, default: str | None) -> dict[str, Any] | None:
    """Return the configuration with our edits; None for a container that needs none.

    Args:
        config: of the OCI bundle.
        host: on which the container runs.
        default: limit of a container that names none; None refuses it.

    Raises:
        NoLimit, HookUndone: it gets a GPU, and has no limit, or the hook could not enforce it.
    """
    memory, has_gpu = variables(config).get("CONVGPU_MEMORY"), uses_gpu(config, host)
    if not (memory or has_gpu):
        return None
    if has_gpu:
        refuse_variables(config)
    if has_device(config):
        _refuse_moved(host)
        return None
    if _has_volume(config, host):
        if has_gpu:
            refuse_undone(config, host.directory, _destinations(config, host), host.open_source)
        return None
    if not has_gpu and any(_is_of_volume(mount, host) for mount in config.get("mounts") or ()):
        return None  # the limit that it names is that of the volume
    limit = memory or default
    if not limit:
        raise NoLimit(
            "this container would get a GPU and has no limit: give it one (-e CONVGPU_MEMORY=2g), or all that have "
            "none (--convgpu-memory=2g in the runtime's runtimeArgs in daemon.json)"
        )
    _refuse_moved(host)
    return _edit(config, host, limit)


def _refuse_moved(host: Host) -> None:
    if host.root is not None:
        refuse_moved(MOUNT_PATH, host.root.lead(MOUNT_PATH))
        refuse_moved(PRELOAD_PATH, host.root.lead(PRELOAD_PATH))


def has_device(config: Mapping[str, Any]) -> bool:
    """Tell whether a CDI device of ours has edited the bundle (runtime/cdi.py): only files of the host bring hooks."""
    hooks = (config.get("hooks") or {}).get("createRuntime") or ()
    return any(list(hook.get("args") or ())[: len(_BEGINS)] == _BEGINS for hook in hooks)


def _destinations(config: Mapping[str, Any], host: Host) -> list[str]:
    mounts = config.get("mounts") or ()
    return text_destinations(mounts) if host.root is None else host.root.destinations(mounts)


def _has_volume(config: Mapping[str, Any], host: Host) -> bool:
    """Tell whether a ConvGPU volume is mounted; raise `NoLimit` if another mount takes its place."""
    mount = _mounts_by_target(config).get(MOUNT_PATH)
    if mount is None:
        return False
    if _is_of_volume(mount, host, part=False):
        return True
    raise NoLimit(f"something else is mounted at {MOUNT_PATH}, so nothing would enforce the limit: mount it elsewhere")


def _is_of_volume(mount: Mapping[str, Any], host: Host, *, part: bool = True) -> bool:
    """Tell whether a ConvGPU volume is mounted, or a `part` of one."""
    path = host.open_source(str(mount.get("source"))).path.removeprefix(f"{host.directory}/")
    found = _VOLUME.match(path)
    return found is not None and (found.end() == len(path) or (part and path[found.end()] == "/"))


def _edit(config: Mapping[str, Any], host: Host, limit: str) -> dict[str, Any]:
    targets = _mounts_by_target(config)
    process = dict(config.get("process") or {})
    process["env"] = _environment(process.get("env") or (), host, limit)
    hooks = {stage: list(rows or ()) for stage, rows in (config.get("hooks") or {}).items()}
    for stage, hook in injected_hooks(host).items():
        hooks.setdefault(stage, []).append(hook)
    added = (mount for mount in injected_mounts(host) if mount["destination"] not in targets)
    return {**config, "mounts": [*(config.get("mounts") or ()), *added], "process": process, "hooks": hooks}


def _mounts_by_target(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(mount.get("destination")).rstrip("/"): mount for mount in config.get("mounts") or ()}


def injected_hooks(host: Host) -> dict[str, dict[str, Any]]:
    """Return our OCI hook of each stage."""
    return {"createRuntime": host.hook("begin", _BEGIN_TIMEOUT), "poststop": host.hook("end", _END_TIMEOUT)}


def injected_mounts(host: Host) -> list[dict[str, Any]]:
    """Return the mounts in the form of the OCI specification: the mount point of the folder, and the preload file."""
    point = {"destination": MOUNT_PATH, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=64k"]}
    file = {"destination": PRELOAD_PATH, "type": "bind", "source": host.preload, "options": ["bind", "ro", "nosuid"]}
    return [point, file]


def _environment(rows: Sequence[str], host: Host, limit: str) -> list[str]:
    theirs = split_variables(rows)
    ours = {"CONVGPU_MEMORY": limit, "LD_PRELOAD": _prepend(LIBRARY_PATH, theirs.get("LD_PRELOAD"))}
    if host.simulated:
        ours["LD_LIBRARY_PATH"] = _prepend(DRIVER_PATH, theirs.get("LD_LIBRARY_PATH"))
    unchanged = [row for row in rows if row.partition("=")[0] not in ours]
    return [*unchanged, *(f"{name}={value}" for name, value in ours.items())]


def _prepend(path: str, paths: str | None) -> str:
    return f"{path}:{paths}" if paths and path not in paths.split(":") else path
