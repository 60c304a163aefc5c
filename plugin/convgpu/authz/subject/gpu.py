"""The setting by which a container gets a GPU, as `convgpu.runtime.gpu_requests` judges them."""

from typing import NamedTuple

from convgpu.authz.ports import HostDevicePort
from convgpu.authz.requests.container import CDI_NAME, ContainerSettings
from convgpu.runtime.gpu_requests import DeviceRule, DeviceSettings, find_gpu_requests


class FoundGpu(NamedTuple):
    """What gives a container a GPU.

    Attributes:
        setting: as its user would recognize it; None if nothing does.
        unsearched: the folder of `--device` that has too much in it to tell, where it is only for that.
    """

    setting: str | None
    unsearched: str = ""


def find_gpu(container: ContainerSettings, runtime: str, devices: HostDevicePort) -> FoundGpu:
    """Return what gives the container a GPU.

    Args:
        container: asked for, or existing.
        runtime: that runs it, the Engine's default resolved; empty for an unknown one.
        devices: the host's devices.
    """
    at = devices.gpu_at(container.devices)
    settings = DeviceSettings(
        device_requests=container.device_requests,
        cdi_devices=tuple(path for path in container.devices if CDI_NAME.fullmatch(path)),
        gpu_nodes=(at.path,) if at is not None and at.is_seen else (),
        rules=tuple(rule for text in container.device_rules if (rule := _device_rule(text)) is not None),
        mounts=tuple((mount.source if mount.kind == "bind" else "", mount.target) for mount in container.mounts),
        annotations=tuple(container.annotations),
        environment=container.environment,
        runtime=runtime,
    )
    setting = next(find_gpu_requests(settings, devices.is_gpu_number), None)
    if setting is None and at is not None:
        return FoundGpu(f"--device {at.path}", unsearched=at.path)
    return FoundGpu(setting)


def _device_rule(text: str) -> DeviceRule | None:
    """Read `c 195:* rwm`: minor and access are taken for all; None for what is no rule, which the Engine refuses."""
    kind, _, rest = text.strip().partition(" ")
    major = rest.strip().partition(":")[0]
    if kind == "a" or major == "*":
        return DeviceRule(kind, None, text=text)
    return DeviceRule(kind, int(major), text=text) if major.isascii() and major.isdecimal() else None
