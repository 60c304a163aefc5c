"""How a container gets at the GPUs of a host that is a folder here."""

from pathlib import Path
from typing import Any

import pytest

from convgpu.cli.run.gpu_access import LIBRARIES_AT, Access, Host, HostGpu, NoAccess, choose, parse_gpus
from convgpu.cli.run.host_gpus import inspect_host

LIBRARIES = {"libcuda.so.1": "/usr/lib/libcuda.so.580", "libnvidia-ml.so.1": "/usr/lib/libnvidia-ml.so.580"}
BARE = Host(
    gpus=(HostGpu("GPU-a", 3), HostGpu("GPU-b", 0)),
    nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"),
    libraries=LIBRARIES,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("all", None),
        ("-1", "refused"),
        ("count=all", None),
        ("2", None),
        ("any", None),
        ("any:3", None),
        ("any:0", "refused"),
        ("count=1", None),
        ("device=1", ("1",)),
        ('"device=0,GPU-a"', ("0", "GPU-a")),
        ('"device=0,1",capabilities=utility', ("0", "1")),
        ("capabilities=utility", None),
        ("0", "refused"),
        ("0,1", "refused"),
        ("device=", "refused"),
        ("some", "refused"),
    ],
)
def test_gpus_are_read_as_docker_does(text: str | None, expected: Any) -> None:
    if expected == "refused":
        with pytest.raises(ValueError, match="write any, a count"):
            parse_gpus(text)
    else:
        assert parse_gpus(text) == expected


def words(info: dict[str, Any], host: Host | None, gpus: tuple[str, ...] | None = None) -> tuple[str, ...]:
    return choose(info, host, "2" if gpus else None, gpus).words


def test_the_toolkit_is_taken_where_it_is_and_where_the_engine_is_another_host() -> None:
    assert words({"Runtimes": {"nvidia": {}, "runc": {}}}, BARE) == ("--gpus", "all")
    assert words({}, Host(toolkit=True), ("0", "1")) == ("--gpus", "2")
    assert words({}, None) == ("--gpus", "all")


def test_cdi_is_taken_where_the_engine_knows_the_devices() -> None:
    known = {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}
    assert words(known, BARE) == ("--device", "nvidia.com/gpu=all")
    assert words(known, BARE, ("0", "1")) == ("--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1")
    assert words({"CDISpecDirs": ["/etc/cdi"]}, Host(cdi=True)) == ("--device", "nvidia.com/gpu=all")


def test_else_the_devices_and_libraries_of_the_host() -> None:
    libraries = [
        word
        for name, file in LIBRARIES.items()
        for word in ("--mount", f"type=bind,src={file},dst={LIBRARIES_AT}/{name},readonly")
    ]
    nodes = ["--device", "/dev/nvidiactl", "--device", "/dev/nvidia-uvm"]
    both = ("--device", "/dev/nvidia3", "--device", "/dev/nvidia0", *nodes, *libraries)
    assert choose({}, BARE, None, None) == Access(both, LIBRARIES_AT, "devices and libraries of this host")
    for name in ("1", "GPU-b"):
        assert words({}, BARE, (name,)) == ("--device", "/dev/nvidia0", *nodes, *libraries)
    with pytest.raises(NoAccess, match="no GPU '2'"):
        choose({}, BARE, "3", ("2",))


@pytest.mark.parametrize("host", [Host(), Host(nodes=BARE.nodes), Host(libraries=LIBRARIES)])
def test_a_host_without_a_way_is_told_what_is_missing(host: Host) -> None:
    with pytest.raises(NoAccess, match=r"(?s)neither NVIDIA's container toolkit.*Install the driver"):
        choose({}, host, None, None)


def test_what_a_host_has_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    (libraries := tmp_path / "usr/lib64").mkdir(parents=True)
    (libraries / "libcuda.so.580.1").touch()
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    for bus, uuid, minor in (("0000:01:00.0", "GPU-a", 1), ("0000:02:00.0", "GPU-b", 0)):
        (folder := tmp_path / "proc/driver/nvidia/gpus" / bus).mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    assert inspect_host(tmp_path) == Host(
        gpus=(HostGpu("GPU-a", 1), HostGpu("GPU-b", 0)),
        nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"),
        libraries={"libcuda.so.1": str(libraries / "libcuda.so.580.1")},
    )
    (cdi := tmp_path / "etc/cdi").mkdir(parents=True)
    (cdi / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    assert inspect_host(tmp_path).cdi
