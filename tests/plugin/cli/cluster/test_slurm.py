"""`convgpu slurm setup`, up to the GPUs of a node."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from convgpu.cli.cluster import slurm
from convgpu.cli.terminal.errors import Refused
from convgpu.cluster.settings import NodeCard, Settings
from convgpu.protocol.records import Device

GIB = 1 << 30
DEVICES = [
    Device(uuid=uuid, index=index, name="", total=16 * GIB, capacity=15 * GIB, granted=0, used=0, settling=0)
    for index, uuid in enumerate(("GPU-a", "GPU-b"))
]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which NVIDIA's driver says which device node a GPU has."""
    monkeypatch.setattr(slurm, "_DRIVER", tmp_path / "gpus")
    return tmp_path / "gpus"


def test_the_driver_says_which_device_node_a_gpu_has(driver: Path) -> None:
    """Its numbers are not those of NVML: the order of PCI is another one."""
    for bus, uuid, minor in (("0000:01:00.0", "GPU-b", 0), ("0000:02:00.0", "GPU-a", 3), ("0000:03:00.0", "GPU-x", 1)):
        (driver / bus).mkdir(parents=True)
        text = f"Model: \t\t NVIDIA H200\nGPU UUID:   \t {uuid}\nDevice Minor: \t {minor}\n"
        (driver / bus / "information").write_text(text)
    assert slurm._cards((), DEVICES) == (
        NodeCard("GPU-b", "/dev/nvidia0", 15 * GIB),
        NodeCard("GPU-a", "/dev/nvidia3", 15 * GIB),
    )


def test_device_nodes_can_be_named(driver: Path) -> None:  # noqa: ARG001
    cards = slurm._cards(("1=/dev/nvidia7", "GPU-a=/dev/nvidia2"), DEVICES)
    assert [(card.uuid, card.file) for card in cards] == [("GPU-a", "/dev/nvidia2"), ("GPU-b", "/dev/nvidia7")]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((), "which device node each GPU has is not known here.\nName it: --card 0=/dev/nvidia0 for each GPU"),
        (("5=/dev/nvidia0",), "ConvGPU knows no GPU '5'.\nSee: convgpu devices"),
    ],
)
def test_what_is_not_known_is_asked_for(driver: Path, given: tuple[str, ...], text: str) -> None:  # noqa: ARG001
    with pytest.raises(Refused) as refused:
        slurm._cards(given, DEVICES)
    assert refused.value.message == text


def test_the_fastest_port_of_hardware_that_is_connected_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_PORTS", tmp_path)
    assert slurm._fastest_port() == 0
    ports = [
        ("eth0", "25000", "device"),
        ("eth1", "100000", "device"),
        ("eth2", "-1", "device"),
        ("docker0", "999000", ""),
    ]
    for name, speed, device in ports:
        (tmp_path / name / device).mkdir(parents=True)
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    (tmp_path / "eth3/device").mkdir(parents=True)
    assert slurm._fastest_port() == 100


def test_slurm_promises_no_more_of_a_gpu_than_convgpu_does() -> None:
    leaving = [replace(device, promised=int(22.5 * GIB)) for device in DEVICES]
    slurm._check_promise(1.0, DEVICES)
    slurm._check_promise(1.5, leaving)
    with pytest.raises(Refused, match=r"ConvGPU promises 1 times a GPU here, less than --threshold 1\.5\.\n"):
        slurm._check_promise(1.5, [*leaving, *DEVICES])


def test_a_threshold_that_the_host_has_no_memory_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_host_memory", lambda: 15 * GIB)
    settings = Settings({"n1": (NodeCard("GPU-a", "/dev/nvidia0", 16 * GIB),)}, threshold=1.5)
    with pytest.raises(Refused, match=r"a threshold of 1\.5 takes 8 GiB of the host's memory, more than half"):
        slurm._check_host_memory(settings, "n1")
    monkeypatch.setattr(slurm, "_host_memory", lambda: 16 * GIB)
    slurm._check_host_memory(settings, "n1")


def test_a_slurm_as_debian_12_has_it_is_too_old_and_lacks_all_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of ConvGPU is set up there, which must not hide that Slurm is too old."""
    for name, text in (("scontrol", "SLURM_VERSION = 22.05.8"), ("sinfo", "n1|gpu:2")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", f"{tmp_path}/slurm.conf")
    done = CliRunner().invoke(slurm.check, terminal_width=200)
    told = [line for line in done.output.splitlines() if line.startswith("fail")]
    assert (done.exit_code, told[0]) == (
        1,
        "fail  slurm     Slurm is version 22.05.8; ConvGPU needs 24.05 or newer: Debian 13 has 24.11",
    )
    assert told[-1] == f"fail  nodes     there is no {tmp_path}/convgpu.json, which says what the nodes have."
    assert done.output.endswith("Type: convgpu slurm setup\n")
