"""What a container without a ConvGPU volume is given: the same for the OCI runtime and for CDI. Pure.

Both put in a place at /run/convgpu, the preload file, and hooks (OCI runtime specification, config.md, POSIX-platform
Hooks). The hooks learn the container's id: before the container's program starts they tell the scheduler and mount the
container's own folder over the place; after its end they tell that.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from convgpu.runtime.devices import NVIDIA_MAJOR

MOUNT_PATH: Final = "/run/convgpu"
LIBRARY: Final = f"{MOUNT_PATH}/libconvgpu.so"
PRELOAD_PATH: Final = "/etc/ld.so.preload"
# Variables of the container that stand for the options of a volume.
OPTIONS: Final[Mapping[str, str]] = {
    "CONVGPU_MEMORY": "memory",
    "CONVGPU_GPUS": "gpus",
    "CONVGPU_WAIT": "wait",
    "CONVGPU_PRIORITY": "priority",
}
_BEGIN_TIME: Final = 30  # seconds that a runtime waits for a hook
_END_TIME: Final = 15
_NO_GPU: Final = frozenset({"", "void", "none"})  # of NVIDIA_VISIBLE_DEVICES
# A GPU as the scheduler knows it, too. NVIDIA_VISIBLE_DEVICES may have other words: CDI's names, the place of a list.
_GPU: Final = re.compile(r"\d+|(?:GPU|MIG)-\S+")
# The toolkit's setting swarm-resource, by its customary names; GPUMEM is a size of ours.
_RESOURCE: Final = re.compile("DOCKER_RESOURCE_.*GPU.*(?<!GPUMEM)")
# NVIDIA's runtime takes mounts below these for a list of devices, and such annotations for CDI devices.
_DEVICE_LISTS: Final = ("/run/nvidia-container-devices", "/var/run/nvidia-container-devices")
_CDI: Final = "cdi.k8s.io/"
_NVIDIA_HOOKS: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")


class NoLimit(ValueError):  # noqa: N818 - the state of a container
    """A container would get a GPU and has no limit; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the edits name.

    Attributes:
        program: path of `convgpu-runtime`.
        directory: the scheduler's, as the host sees it.
        simulated: the CUDA driver comes with the folder.
        is_gpu: tells whether character devices of a major number, or of a major and a minor one, belong to a GPU.
    """

    program: str
    directory: str
    simulated: bool
    is_gpu: Callable[[int, int | None], bool] = lambda major, _: major == NVIDIA_MAJOR

    def hook(self, what: str, timeout: int) -> dict[str, Any]:
        """Return a hook in the form of the OCI specification."""
        words = ["convgpu-runtime", "hook", what, f"--convgpu-directory={self.directory}"]
        return {"path": self.program, "args": words, "timeout": timeout}

    @property
    def preload(self) -> str:
        """The file for /etc/ld.so.preload."""
        return f"{self.directory}/ld.so.preload"


def variables(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a container's first process; the last of two of a name counts."""
    rows = (config.get("process") or {}).get("env") or ()
    return {name: value for name, _, value in (row.partition("=") for row in rows)}


def options(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a volume that a container's variables mean."""
    environment = variables(config)
    found = {option: environment[name] for name, option in OPTIONS.items() if environment.get(name)}
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    named = all(_GPU.fullmatch(word.strip()) for word in visible.split(","))
    if named and "gpus" not in found and ":" not in found.get("memory", ""):
        found["gpus"] = visible
    return found


def uses_gpu(config: Mapping[str, Any], host: Host) -> bool:
    """Say whether a container gets a GPU, as far as its configuration tells (ways: `convgpu.authz.checks.gpu`)."""
    if _asks_by_variable(variables(config)):
        return True
    linux = config.get("linux") or {}
    devices = linux.get("devices") or ()
    if any(str(device.get("path")).startswith("/dev/nvidia") for device in devices):
        return True
    allowed = [rule for rule in (linux.get("resources") or {}).get("devices") or () if rule.get("allow")]
    if any(_is_gpu(device, host) for device in devices) or any(_opens_gpu(rule, host) for rule in allowed):
        return True
    targets = [str(mount.get("destination")) for mount in config.get("mounts") or ()]
    if any(target.startswith(_DEVICE_LISTS) for target in targets):
        return True
    if any(_CDI in str(name) for name in config.get("annotations") or ()):
        return True
    hooks = [hook for stage in (config.get("hooks") or {}).values() for hook in stage or ()]
    return any(str(hook.get("path")).rpartition("/")[2] in _NVIDIA_HOOKS for hook in hooks)


def _asks_by_variable(environment: Mapping[str, str]) -> bool:
    """Say whether NVIDIA's runtime, which may stand behind ours, would give a GPU for a variable."""
    visible = environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is not None and visible not in _NO_GPU:
        return True
    if any(_RESOURCE.fullmatch(name) and value for name, value in environment.items()):
        return True
    return visible is None and "CUDA_VERSION" in environment and "NVIDIA_REQUIRE_CUDA" not in environment


def _is_gpu(device: Mapping[str, Any], host: Host) -> bool:
    return device.get("type") in {"c", "u"} and host.is_gpu(int(device.get("major", -1)), device.get("minor"))


def _opens_gpu(rule: Mapping[str, Any], host: Host) -> bool:
    """Judge a rule of the cgroup: -1, or nothing, stands for every number; to make a node is not to use it."""
    if not set("rw") & set(rule.get("access") or "rwm") or rule.get("type") == "b":
        return False
    major, minor = rule.get("major"), rule.get("minor")
    return major in {None, -1} or host.is_gpu(int(major), None if minor == -1 else minor)


def cover(config: Mapping[str, Any], host: Host, default: str | None) -> dict[str, Any] | None:
    """Return the configuration with our edits; None for a container that is none of our business.

    Args:
        config: of the OCI bundle.
        host: see there.
        default: limit of a container that names none; None refuses it.

    Raises:
        NoLimit: it gets a GPU, and has no limit, or nothing would keep it.
    """
    mounted = {str(mount.get("destination")).rstrip("/"): mount for mount in config.get("mounts") or ()}
    memory = variables(config).get("CONVGPU_MEMORY")
    if not (memory or uses_gpu(config, host)):
        return None
    if MOUNT_PATH in mounted:
        if str(mounted[MOUNT_PATH].get("source")).startswith(f"{host.directory}/"):
            return None  # a ConvGPU volume
        raise NoLimit(f"something else is mounted at {MOUNT_PATH}, so nothing would keep the limit: mount it elsewhere")
    if not (memory or default):
        raise NoLimit(
            "this container would get a GPU and has no limit: give it one (-e CONVGPU_MEMORY=2g), or all that have "
            "none (--convgpu-memory=2g in the runtime's runtimeArgs in daemon.json)"
        )
    edited = dict(config)
    edited["mounts"] = [*(config.get("mounts") or ()), *(m for m in mounts(host) if m["destination"] not in mounted)]
    process = dict(config.get("process") or {})
    process["env"] = _environment(process.get("env") or (), host, memory or str(default))
    edited["process"] = process
    hooks = {stage: list(rows or ()) for stage, rows in (config.get("hooks") or {}).items()}
    for stage, hook in stages(host).items():
        hooks.setdefault(stage, []).append(hook)
    edited["hooks"] = hooks
    return edited


def stages(host: Host) -> dict[str, dict[str, Any]]:
    """Return our hook of each stage."""
    return {"createRuntime": host.hook("begin", _BEGIN_TIME), "poststop": host.hook("end", _END_TIME)}


def mounts(host: Host) -> list[dict[str, Any]]:
    """Return the mounts, in the form of the OCI specification: the place for the folder, and the preload file."""
    place = {"destination": MOUNT_PATH, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=64k"]}
    file = {"destination": PRELOAD_PATH, "type": "bind", "source": host.preload, "options": ["bind", "ro", "nosuid"]}
    return [place, file]


def _environment(rows: Sequence[str], host: Host, memory: str) -> list[str]:
    before = {name: value for name, _, value in (row.partition("=") for row in rows)}
    ours = {"CONVGPU_MEMORY": memory, "LD_PRELOAD": _joined(LIBRARY, before.get("LD_PRELOAD"))}
    if host.simulated:
        ours["LD_LIBRARY_PATH"] = _joined(f"{MOUNT_PATH}/driver", before.get("LD_LIBRARY_PATH"))
    kept = [row for row in rows if row.partition("=")[0] not in ours]
    return [*kept, *(f"{name}={value}" for name, value in ours.items())]


def _joined(ours: str, theirs: str | None) -> str:
    return f"{ours}:{theirs}" if theirs and ours not in theirs.split(":") else ours
