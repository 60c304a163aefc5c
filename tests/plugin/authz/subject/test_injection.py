"""Limits that the runtime or a CDI device injects."""

import pytest

from convgpu.authz.ports import HostFacts
from convgpu.authz.requests.container import ContainerSettings
from convgpu.authz.subject.injection import Injection, expect_limits, find_injection
from convgpu.protocol.records import Device

GIB = 1 << 30
NO_MEMORY = {"name": "", "total": 0, "capacity": 0, "granted": 0, "used": 0, "settling": 0}
DEVICES = [Device(uuid=f"GPU-{number}", index=number - 1, **NO_MEMORY) for number in (1, 2)]


BOTH = {"GPU-1": GIB, "GPU-2": GIB}


def asks(chosen: str, requests: int = 1, **environment: str) -> ContainerSettings:
    return ContainerSettings(chosen=chosen, device_requests=requests, environment=environment)


@pytest.mark.parametrize(
    ("container", "host", "expected"),
    [
        (ContainerSettings(), HostFacts(default_runtime="runc", runtime_memory="1g"), None),
        (ContainerSettings(), HostFacts(default_runtime="convgpu", runtime_memory="1g"), Injection("1g")),
        (ContainerSettings(runtime="runc"), HostFacts(default_runtime="convgpu"), None),
        (ContainerSettings(runtime="convgpu"), HostFacts(), Injection(None)),
        (
            ContainerSettings(runtime="convgpu", environment={"CONVGPU_MEMORY": "2g"}),
            HostFacts(runtime_memory="1g"),
            Injection("2g"),
        ),
        (
            ContainerSettings(
                runtime="convgpu",
                environment={"CONVGPU_MEMORY": "9g"},
                cdi_names=("convgpu.io/memory=2g", "nvidia.com/gpu=0", "convgpu.io/memory=3g"),
            ),
            HostFacts(),
            Injection("3g", by_device=True),
        ),
    ],
)
def test_injection(container: ContainerSettings, host: HostFacts, expected: Injection | None) -> None:
    assert find_injection(container, host) == expected


@pytest.mark.parametrize(
    ("memory", "container", "expected"),
    [
        ("2g", ContainerSettings(), {"GPU-1": 2 * GIB, "GPU-2": 2 * GIB}),
        ("2g", asks("0"), {"GPU-1": 2 * GIB}),
        ("1g,2g", asks("0"), {"GPU-1": 0}),  # the scheduler refuses it
        ("1g", asks("0,nvidia.com/gpu=1"), BOTH),
        ("1g", asks("0", CONVGPU_GPUS="GPU-2"), {"GPU-2": GIB}),
        ("GPU-2:1g", asks("0"), {"GPU-2": GIB}),
        ("much", asks("1"), {"GPU-2": 0}),
        ("1g", asks("", requests=0, NVIDIA_VISIBLE_DEVICES="0"), {"GPU-1": GIB}),
        # The Engine appends a variable of its own for each request: `all` for the first of these, the last of two.
        ("1g", asks("", NVIDIA_VISIBLE_DEVICES="0"), BOTH),
        ("1g", asks("0", requests=2, NVIDIA_VISIBLE_DEVICES="0"), BOTH),
        # Or none, where it gives GPUs by CDI: then that of the user holds.
        ("1g", asks("0", NVIDIA_VISIBLE_DEVICES="1"), BOTH),
        (
            "1g",
            asks("0", NVIDIA_VISIBLE_DEVICES="all"),
            {"GPU-1": GIB},
        ),  # as images say; the device is the one asked for
        ("1g", asks("0", CONVGPU_GPUS="0", NVIDIA_VISIBLE_DEVICES="1"), {"GPU-1": GIB}),
        ("1g," * 2000, ContainerSettings(), {}),  # the scheduler refuses it
        ("1g", asks("", requests=0, NVIDIA_VISIBLE_DEVICES="all," * 2000), BOTH),  # the runtime passes none of it on
        ("1g", asks("", requests=0, NVIDIA_VISIBLE_DEVICES="0," * 3000 + "0"), BOTH),
        ("GPU-2:1g", asks("", requests=0, NVIDIA_VISIBLE_DEVICES="0," * 3000), {"GPU-2": GIB}),
    ],
)
def test_expected_limits(memory: str, container: ContainerSettings, expected: dict[str, int]) -> None:
    assert expect_limits(memory, container, DEVICES) == expected
