"""Limits that the runtime `convgpu` or a CDI device injects into a container without a ConvGPU volume. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.authz.ports import HostFacts
from convgpu.authz.requests.container import LIMIT_DEVICE, ContainerSettings
from convgpu.protocol.records import Device
from convgpu.protocol.requests import LONGEST_OPTION
from convgpu.protocol.sizes import parse_size

# The name of `convgpu-runtime` in daemon.json.
RUNTIME: Final = "convgpu"
_MORE_THAN_ANY: Final = 1 << 50  # bytes


@dataclass(frozen=True, slots=True)
class Injection:
    """The limit that is injected into a container.

    Attributes:
        memory: in the form of the option `memory`; None if neither the container nor the runtime names a limit.
        by_device: by a CDI device, which takes precedence over the runtime.
    """

    memory: str | None
    by_device: bool = False


def find_injection(container: ContainerSettings, host: HostFacts) -> Injection | None:
    """Return what is injected into a container; None if it uses neither the runtime nor a CDI device of ours.

    Of several CDI devices the runtime takes one, so the largest counts. Their names together can be of any length.
    """
    sizes = [name.removeprefix(LIMIT_DEVICE) for name in container.cdi_names if name.startswith(LIMIT_DEVICE)]
    if sizes:
        return Injection(max(sizes, key=size_or_zero), by_device=True)
    if (container.runtime or host.default_runtime) != RUNTIME:
        return None
    return Injection(container.environment.get("CONVGPU_MEMORY") or host.runtime_memory)


def expect_limits(
    memory: str, container: ContainerSettings, devices: Sequence[Device], gpus: str = ""
) -> dict[str, int]:
    """Return the limits that the scheduler will set for a container, in bytes by device; none if it refuses the text.

    The GPUs are those that the runtime reads (runtime/edits.py, `volume_options`) from variables as the Engine leaves
    them: it appends its own NVIDIA_VISIBLE_DEVICES for each request of GPUs, of which the last one holds. Where it
    gives GPUs by CDI (29) it appends none, so those that the user's variable names count as well.

    Args:
        memory: in the form of the option of a volume.
        container: chooses the GPUs; all of them, if its choice is not clear.
        devices: of the scheduler.
        gpus: the option of its volume, if it has one.
    """
    environment = container.environment
    given = container.chosen if container.device_requests == 1 else ""
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    asked = given if container.device_requests else visible
    named = gpus or environment.get("CONVGPU_GPUS")
    if len(memory) > LONGEST_OPTION:
        return {}
    if ":" in memory:
        return {
            uuid: size_or_zero(size) for uuid, _, size in (part.strip().rpartition(":") for part in memory.split(","))
        }
    # A long list may not reach the scheduler, which then chooses among all.
    names, known = _names(named or asked), {name for device in devices for name in (device.uuid, str(device.index))}
    clear = names <= known
    if not named and _names(visible) <= known:
        names |= _names(visible)
    size = size_or_zero(memory)
    return {device.uuid: size for device in devices if not clear or names & {device.uuid, str(device.index)}}


def _names(gpus: str) -> set[str]:
    """Return the GPUs that a list names; one that is too long may not reach the scheduler."""
    return {name.strip() for name in gpus.split(",")} if len(gpus) <= LONGEST_OPTION else {""}


def size_or_zero(text: str) -> int:
    """Return a size in bytes; 0 for a text that is none, which the scheduler refuses.

    A share of a GPU counts as more than any GPU has: it is refused before, unless the site exempts somebody from that.
    """
    if "%" in text:
        return _MORE_THAN_ANY
    try:
        return parse_size(text)
    except ValueError:
        return 0
