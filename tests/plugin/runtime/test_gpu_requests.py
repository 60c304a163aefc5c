"""One table for both users of `gpu_requests`: a request to the Engine, and its OCI bundle."""

from collections.abc import Iterable
from typing import Any

import pytest

from convgpu.authz.ports import GpuPath
from convgpu.authz.requests.container import read_request
from convgpu.authz.subject.gpu import find_gpu
from convgpu.runtime.edits import Host, uses_gpu
from convgpu.runtime.gpu_requests import DeviceRule, DeviceSettings, asks_for_gpu

HOST = Host("/bin/convgpu-runtime", "/d", simulated=False)


class HostDevicePort:
    """A host whose only GPU has the major number 195."""

    def resolve(self, path: str) -> str:
        return path

    def gpu_at(self, paths: Iterable[str]) -> GpuPath | None:
        return next((GpuPath(path) for path in paths if path.startswith("/dev/nvidia")), None)

    def is_gpu_number(self, major: int, _minor: int | None = None) -> bool:
        return major == 195


def by_variables(*rows: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"Env": list(rows)}, {"process": {"env": list(rows)}}


def by_mount(source: str, target: str) -> tuple[dict[str, Any], dict[str, Any]]:
    mount = {"type": "bind", "source": source, "destination": target}
    return {"HostConfig": {"Binds": [f"{source}:{target}"]}}, {"mounts": [mount]}


def by_rule(text: str, **rule: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    allowed = [{"allow": True, **rule}]
    return {"HostConfig": {"DeviceCgroupRules": [text]}}, {"linux": {"resources": {"devices": allowed}}}


def by_device(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"HostConfig": {"Devices": [{"PathOnHost": path}]}}, {"linux": {"devices": [{"path": path}]}}


def by_annotation(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"HostConfig": {"Annotations": {name: "nvidia.com/gpu=0"}}}, {"annotations": {name: "nvidia.com/gpu=0"}}


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        (by_variables("A=b"), False),
        (by_variables("NVIDIA_VISIBLE_DEVICES=all"), True),
        (by_variables("NVIDIA_VISIBLE_DEVICES="), False),
        (by_variables("NVIDIA_VISIBLE_DEVICES=void"), False),
        (by_variables("NVIDIA_VISIBLE_DEVICES=none"), False),
        # NVIDIA's toolkit strips no blanks, so this is the name of a device.
        (by_variables("NVIDIA_VISIBLE_DEVICES= none"), True),
        (by_variables("NVIDIA_VISIBLE_DEVICES=void\n"), True),
        (by_variables("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES=0"), True),
        (by_variables("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=none"), False),
        (by_variables("DOCKER_RESOURCE_GPU=GPU-1"), True),
        (by_variables("DOCKER_RESOURCE_NVIDIA\n-GPU=1"), True),
        (by_variables("DOCKER_RESOURCE_GPU="), False),
        (by_variables("DOCKER_RESOURCE_GPUMEM=2048"), False),
        (by_variables("DOCKER_RESOURCE_GPU=1", "NVIDIA_VISIBLE_DEVICES=void"), True),
        (by_variables("CUDA_VERSION=7"), True),
        (by_variables("CUDA_VERSION=7", "NVIDIA_VISIBLE_DEVICES=void"), False),
        (by_variables("CUDA_VERSION=12", "NVIDIA_REQUIRE_CUDA=cuda>=12"), False),
        # For NVIDIA's toolkit an empty requirement is none, which makes the image a legacy one.
        (by_variables("CUDA_VERSION=12", "NVIDIA_REQUIRE_CUDA="), True),
        (by_mount("/dev/null", "/var/run/nvidia-container-devices/all"), True),
        (by_mount("/dev/null", "/run//nvidia-container-devices/./0"), True),
        # The toolkit compares no more than the beginning: this is the device `all`.
        (by_mount("/dev/null", "/var/run/nvidia-container-devicesall"), True),
        (by_mount("/dev/null", "/run/nvidia-container"), False),
        (by_mount("/dev/nvidia0", "/x"), True),
        (by_mount("/dev/../dev/nvidiactl", "/x"), True),
        (by_mount("/dev/nvme0", "/x"), False),
        (by_rule("c 195:* rwm", type="c", major=195, minor=-1, access="rwm"), True),
        (by_rule("c 1:3 rwm", type="c", major=1, minor=3, access="rwm"), False),
        (by_rule("c *:* rwm", type="c", major=-1, minor=-1, access="rwm"), True),
        (by_rule("b 195:0 rwm", type="b", major=195, minor=0, access="rwm"), False),
        (by_rule("a 7:* rwm", type="a", major=7, minor=-1, access="rwm"), True),
        (by_device("/dev/nvidia0"), True),
        (by_device("/dev/fuse"), False),
        (by_annotation("cdi.k8s.io/x"), True),
        (by_annotation("nvidia.cdi.k8s.io/x"), True),
        (by_annotation("k8s.io/x"), False),
    ],
)
def test_authorization_and_runtime_agree(forms: tuple[dict[str, Any], dict[str, Any]], expected: bool) -> None:
    request, bundle = forms
    assert (find_gpu(read_request(request), "nvidia", HostDevicePort()).setting is not None) is expected
    assert uses_gpu(bundle, HOST) is expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (DeviceRule("c", 195, 0), True),
        (DeviceRule("c", 195, 1), False),
        (DeviceRule("c", 195), False),
        (DeviceRule("c", 195, 0, "m"), False),
        (DeviceRule("c", 195, 0, "r"), True),
        (DeviceRule("", None), True),
    ],
)
def test_a_rule_counts_by_minor_and_access_where_they_are_known(rule: DeviceRule, expected: bool) -> None:
    settings = DeviceSettings(rules=(rule,))
    assert asks_for_gpu(settings, lambda major, minor: (major, minor) == (195, 0)) is expected


@pytest.mark.parametrize(("runtime", "expected"), [("runc", False), ("kata-qemu", False), ("nvidia", True), ("", True)])
def test_variables_count_where_the_runtime_reads_them(runtime: str, expected: bool) -> None:
    settings = DeviceSettings(environment={"NVIDIA_VISIBLE_DEVICES": "all"}, runtime=runtime)
    assert asks_for_gpu(settings, HOST.is_gpu) is expected
