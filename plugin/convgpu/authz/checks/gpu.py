"""What gives a container a GPU."""

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Final

from convgpu.authz.checks.paths import is_at_or_below, normal
from convgpu.authz.ports import Nodes
from convgpu.authz.requests.container import CDI_NAME, Container

# Runtimes that add no GPU of their own. NVIDIA's, and one that nobody knows, reads the variables below.
_PLAIN_RUNTIMES: Final = (
    "runc", "crun", "youki", "runsc", "sysbox-runc", "kata*", "io.containerd.runc.*", "io.containerd.runtime.v1.linux",
    "io.containerd.runsc.*", "io.containerd.kata*",
)  # fmt: skip

# NVIDIA's runtime takes mounts below this folder for a list of devices.
_DEVICE_LIST: Final = "/run/nvidia-container-devices"
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_NONE: Final = frozenset({"", "void", "none"})
# In the names of annotations by which runtimes take CDI devices: NVIDIA's lets a site put its own word before it.
_CDI: Final = "cdi.k8s.io/"


def is_plain(runtime: str) -> bool:
    """Tell whether a runtime adds no GPU by itself."""
    return any(fnmatch.fnmatchcase(runtime, pattern) for pattern in _PLAIN_RUNTIMES)


def find_gpu(container: Container, runtime: str, nodes: Nodes) -> str | None:
    """Return what gives the container a GPU, as its user would recognise it, or None.

    Args:
        container: asked for, or there.
        runtime: that runs it, the Engine's default resolved; empty if nobody knows.
        nodes: the host's devices.
    """
    return next(_find_gpus(container, runtime, nodes), None)


def _find_gpus(container: Container, runtime: str, nodes: Nodes) -> Iterator[str]:
    if container.device_requests:
        yield "--gpus, or a CDI device"
    yield from (f"the CDI device {path}" for path in container.devices if CDI_NAME.fullmatch(path))
    yield from (f"--device {path}" for path in container.devices if nodes.is_gpu(path))
    yield from (f"--device-cgroup-rule {rule!r}" for rule in container.device_rules if _opens_gpu(rule, nodes))
    for mount in container.mounts:
        if mount.kind == "bind" and normal(mount.source).startswith("/dev/nvidia"):
            yield f"the mount of {mount.source}"
        if is_at_or_below(normal(mount.target), _DEVICE_LIST):
            yield f"the mount at {mount.target}"
    yield from (f"the annotation {name}" for name in container.annotations if _CDI in name)
    if not is_plain(runtime) and (variable := asking_variable(container.environment)) is not None:
        yield f"{variable}, with the runtime {runtime or 'of the Engine'}"


def asking_variable(environment: Mapping[str, str]) -> str | None:
    """Return the variable by which NVIDIA's runtime would give a GPU, or None."""
    visible = environment.get(_VISIBLE)
    if visible is not None and visible.strip() not in _NONE:
        return _VISIBLE
    for name, value in environment.items():
        # The toolkit's setting swarm-resource, by its customary names; GPUMEM is a size of ours.
        if name.startswith("DOCKER_RESOURCE_") and "GPU" in name and not name.endswith("GPUMEM") and value:
            return name
    if visible is None and "CUDA_VERSION" in environment and "NVIDIA_REQUIRE_CUDA" not in environment:
        return "CUDA_VERSION"  # an image of CUDA's first years, which NVIDIA's runtime gives all GPUs
    return None


def _opens_gpu(rule: str, nodes: Nodes) -> bool:
    """Judge `c 195:* rwm`; what is no such rule is refused by the Engine."""
    kind, _, rest = rule.strip().partition(" ")
    major = rest.strip().partition(":")[0]
    if kind == "a":
        return True
    if kind != "c":
        return False
    return major == "*" or (major.isascii() and major.isdecimal() and nodes.is_gpu_major(int(major)))
