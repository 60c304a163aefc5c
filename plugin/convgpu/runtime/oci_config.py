"""Reads an OCI bundle's config.json as far as ConvGPU needs it. Pure.

https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from convgpu.runtime.devices import Source
from convgpu.runtime.gpu_requests import DeviceRule, DeviceSettings, IsGpuNumber, is_nvidia_node


def variables(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a container's first process; of two values of one name the last counts."""
    return split_variables((config.get("process") or {}).get("env") or ())


def split_variables(rows: Sequence[str]) -> dict[str, str]:
    """Return the variables that rows of `NAME=VALUE` set."""
    return {name: value for name, _, value in (row.partition("=") for row in rows)}


def read_device_settings(
    config: Mapping[str, Any], is_gpu_number: IsGpuNumber, open_source: Callable[[str], Source] = Source
) -> DeviceSettings:
    """Return the settings of a bundle that can give its container a GPU; `open_source` follows its mounts' sources."""
    sources = {str(mount.get("source") or "") for mount in config.get("mounts") or ()}
    opened = {source: open_source(source) for source in sorted(sources) if source.startswith("/")}
    linux = config.get("linux") or {}
    hooks = (hook for stage in (config.get("hooks") or {}).values() for hook in stage or ())
    return DeviceSettings(
        gpu_nodes=(
            *_gpu_nodes(linux.get("devices") or (), is_gpu_number),
            *(source for source, node in opened.items() if node.numbers and is_gpu_number(*node.numbers)),
        ),
        rules=tuple(_rules((linux.get("resources") or {}).get("devices") or ())),
        mounts=tuple(_mounts(config.get("mounts") or (), opened)),
        annotations=tuple(map(str, config.get("annotations") or ())),
        hooks=tuple(str(hook.get("path")) for hook in hooks),
        environment=variables(config),
    )


def _gpu_nodes(devices: Sequence[Mapping[str, Any]], is_gpu_number: IsGpuNumber) -> Iterator[str]:
    for device in devices:
        path, minor = str(device.get("path")), device.get("minor")
        by_number = device.get("type") in {"c", "u"} and is_gpu_number(int(device.get("major", -1)), minor)
        if by_number or is_nvidia_node(path):
            yield path


def _rules(rows: Sequence[Mapping[str, Any]]) -> Iterator[DeviceRule]:
    """Return the rules that allow something; a number of -1, or none, stands for every number."""
    for row in rows:
        if row.get("allow"):
            major, minor = row.get("major"), row.get("minor")
            yield DeviceRule(
                kind=row.get("type") or "",
                major=None if major in {None, -1} else int(major),
                minor=None if minor in {None, -1} else int(minor),
                access=row.get("access") or "rwm",
            )


def _mounts(rows: Sequence[Mapping[str, Any]], opened: Mapping[str, Source]) -> Iterator[tuple[str, str]]:
    for row in rows:
        source = str(row.get("source") or "")
        yield opened[source].path if source in opened else source, str(row.get("destination"))
