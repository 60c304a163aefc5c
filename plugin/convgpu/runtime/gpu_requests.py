"""Decides whether a container asks for a GPU, for all of ConvGPU. Pure.

Authorization judges requests to the Engine and `convgpu-runtime` edits OCI bundles; each reads its form into
`DeviceSettings`. The two must agree: authorization allows a container without a volume because the runtime injects its
limit. The rules follow nvidia-container-toolkit (internal/config/image, cmd/nvidia-container-runtime-hook).
"""

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from convgpu.runtime.paths import normal

# Runtimes that add no GPU by themselves. NVIDIA's, and an unknown one, read the variables below.
_PLAIN_RUNTIMES: Final = (
    "runc",
    "crun",
    "youki",
    "runsc",
    "sysbox-runc",
    "kata*",
    "io.containerd.runc.*",
    "io.containerd.runtime.v1.linux",
    "io.containerd.runsc.*",
    "io.containerd.kata*",
)
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_NO_GPU: Final = frozenset({"", "void", "none"})  # compared without stripping, as the toolkit does
# The toolkit's setting swarm-resource, by its customary names; DOCKER_RESOURCE_GPUMEM is a size of ours.
_RESOURCE: Final = "DOCKER_RESOURCE_"
_RESERVED_MEMORY: Final = "GPUMEM"
# The toolkit reads destinations that begin so as a list of devices; it wants no slash behind the prefix.
_DEVICE_LIST: Final = "/run/nvidia-container-devices"
_NVIDIA_NODE: Final = "/dev/nvidia"
# In the names of annotations that list CDI devices; NVIDIA's runtime lets a site put a prefix of its own before it.
_CDI_ANNOTATION: Final = "cdi.k8s.io/"
_NVIDIA_HOOKS: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")

# Tells whether character devices of a major number, or of a major and a minor one, belong to a GPU.
IsGpuNumber = Callable[[int, int | None], bool]


class DeviceRule(NamedTuple):
    """A cgroup rule that allows devices.

    Attributes:
        kind: `c`, `b`, `u`, or `a` for all.
        major: None for every number.
        minor: None for every number.
        access: letters of `rwm`.
        text: as the user wrote it.
    """

    kind: str
    major: int | None
    minor: int | None = None
    access: str = "rwm"
    text: str = ""


class DeviceSettings(NamedTuple):
    """The settings of a container that can give it a GPU, whatever form they were read from.

    Attributes:
        device_requests: number of `--gpus` and CDI requests.
        cdi_devices: qualified names of CDI devices.
        gpu_nodes: paths of its device nodes that are GPUs; the reader knows the host's links or the numbers.
        rules: of its device cgroup.
        mounts: source and destination of each; the source only of a bind mount.
        annotations: names.
        hooks: paths of its OCI hooks.
        environment: of its first process.
        runtime: that reads the environment; empty for an unknown one.
    """

    device_requests: int = 0
    cdi_devices: tuple[str, ...] = ()
    gpu_nodes: tuple[str, ...] = ()
    rules: tuple[DeviceRule, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    annotations: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({})
    runtime: str = ""


def find_gpu_requests(settings: DeviceSettings, is_gpu_number: IsGpuNumber) -> Iterator[str]:
    """Return each setting that gives a container a GPU, as its user would recognize it."""
    if settings.device_requests:
        yield "--gpus, or a CDI device"
    yield from (f"the CDI device {name}" for name in settings.cdi_devices)
    yield from (f"--device {path}" for path in settings.gpu_nodes)
    yield from (f"--device-cgroup-rule {rule.text!r}" for rule in settings.rules if _opens_gpu(rule, is_gpu_number))
    for source, destination in settings.mounts:
        if is_nvidia_node(source):
            yield f"the mount of {source}"
        if normal(destination).startswith(_DEVICE_LIST):
            yield f"the mount at {destination}"
    yield from (f"the annotation {name}" for name in settings.annotations if _CDI_ANNOTATION in name)
    yield from (f"the hook {path}" for path in settings.hooks if path.rpartition("/")[2] in _NVIDIA_HOOKS)
    if not is_plain(settings.runtime) and (variable := asking_variable(settings.environment)) is not None:
        yield f"{variable}, with the runtime {settings.runtime or 'of the Engine'}"


def asks_for_gpu(settings: DeviceSettings, is_gpu_number: IsGpuNumber) -> bool:
    """Tell whether any setting gives a container a GPU."""
    return next(find_gpu_requests(settings, is_gpu_number), None) is not None


def is_plain(runtime: str) -> bool:
    """Tell whether a runtime adds no GPU by itself."""
    return any(fnmatch.fnmatchcase(runtime, pattern) for pattern in _PLAIN_RUNTIMES)


def is_nvidia_node(path: str) -> bool:
    """Tell whether a path names one of NVIDIA's device nodes, or a folder of them."""
    return normal(path).startswith(_NVIDIA_NODE)


def asking_variable(environment: Mapping[str, str]) -> str | None:
    """Return the variable by which NVIDIA's runtime gives a GPU, or None."""
    visible = environment.get(_VISIBLE)
    if visible is not None and visible not in _NO_GPU:
        return _VISIBLE
    for name, value in environment.items():
        if name.startswith(_RESOURCE) and "GPU" in name and not name.endswith(_RESERVED_MEMORY) and value:
            return name
    if visible is None and "CUDA_VERSION" in environment and not environment.get("NVIDIA_REQUIRE_CUDA"):
        return "CUDA_VERSION"  # a legacy CUDA image, which NVIDIA's runtime gives all GPUs
    return None


def visible_devices(environment: Mapping[str, str]) -> Iterator[str]:
    """Return the values of variables in which NVIDIA's runtime finds devices: GPUs, and CDI devices of any vendor."""
    for name, value in environment.items():
        if name == _VISIBLE or (name.startswith(_RESOURCE) and not name.endswith(_RESERVED_MEMORY)):
            yield value


def _opens_gpu(rule: DeviceRule, is_gpu_number: IsGpuNumber) -> bool:
    # Permission to make a node (m) is not permission to use it.
    if rule.kind == "b" or not set("rw") & set(rule.access):
        return False
    return rule.kind == "a" or rule.major is None or is_gpu_number(rule.major, rule.minor)
