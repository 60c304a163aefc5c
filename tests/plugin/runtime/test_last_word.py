"""The runtime's last word: a GPU without a limit, or with the hook undone, does not start."""

import os
from pathlib import Path
from typing import Any

import pytest

from convgpu.runtime.devices import Source, open_source
from convgpu.runtime.edits import Host, NoLimit, inject_limit, uses_gpu
from convgpu.runtime.last_word import HookUndone

GPU = {"linux": {"devices": [{"path": "/dev/x", "type": "c", "major": 195, "minor": 0}]}}
VOLUME = {"destination": "/run/convgpu", "type": "bind", "source": "/d/volumes/0123456789abcdef"}
FILE = {"destination": "/etc/ld.so.preload", "type": "bind", "source": "/d/ld.so.preload"}
LOADS = "LD_PRELOAD=/run/convgpu/libconvgpu.so:/other.so"
HOST = Host("/bin/convgpu-runtime", "/d", simulated=False)


def container(*environment: str, mounts: tuple[dict[str, Any], ...] = (VOLUME,), gpu: bool = True) -> dict[str, Any]:
    return {"process": {"env": list(environment)}, "mounts": list(mounts), **(GPU if gpu else {})}


def at(destination: str, source: str = "/data") -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": source}


@pytest.mark.parametrize(
    "config",
    [
        container(LOADS),
        container(mounts=(VOLUME, FILE)),
        container(mounts=(FILE, at("/run"), at("/data"), VOLUME, at("/run/other"))),
        container(LOADS, mounts=(VOLUME, at("/etc/ld.so.preload"))),
        container("LD_AUDIT=/x", gpu=False),
        container(gpu=False),
    ],
    ids=["variable", "file", "mounts beside it", "a file of the user", "no GPU, a variable", "no GPU"],
)
def test_what_is_limited_starts_as_it_is(config: dict[str, Any]) -> None:
    assert inject_limit(config, HOST, None) is None


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (container(), "give it -e LD_PRELOAD=/run/convgpu/libconvgpu.so"),
        (container("LD_PRELOAD=/other.so:/run/convgpu/libconvgpu.so"), "would not load the hook"),
        (container(mounts=(VOLUME, at("/etc/ld.so.preload", "/tmp/ld.so.preload"))), "would not load the hook"),
        (container(mounts=(VOLUME, FILE, at("/etc//ld.so.preload"))), "would not load the hook"),
        (container(LOADS, "LD_AUDIT=/x"), "LD_AUDIT would lead"),
        (container(LOADS, "CONVGPU_SOCKET="), "CONVGPU_SOCKET would lead"),
        (container(LOADS, mounts=(VOLUME, at("/run/convgpu/libconvgpu.so"))), "lies over the ConvGPU volume"),
        (container(LOADS, mounts=(at("/run/convgpu/driver"), VOLUME)), "lies over the ConvGPU volume"),
        (container(LOADS, mounts=(VOLUME, at("/run"))), "the mount at /run lies over"),
        (container(LOADS, mounts=(VOLUME, at("/var/run/convgpu/x"))), "lies over the ConvGPU volume"),
        (container("CONVGPU_MEMORY=1g", "LD_AUDIT=/x", mounts=()), "LD_AUDIT would lead"),
    ],
)
def test_a_hook_that_is_undone_does_not_start(config: dict[str, Any], text: str) -> None:
    with pytest.raises(HookUndone, match=text):
        inject_limit(config, HOST, "2g")


@pytest.mark.parametrize("source", ["/d/staging", "/d", "/d/volumes/x/../../etc", "/d2/volumes/0123456789abcdef"])
def test_what_is_no_volume_of_ours_is_none(source: str) -> None:
    with pytest.raises(NoLimit, match="something else is mounted"):
        inject_limit(container(LOADS, mounts=(at("/run/convgpu", source),)), HOST, "2g")


def test_a_volume_is_known_by_where_its_source_leads(tmp_path: Path) -> None:
    volume = tmp_path / "d/volumes/0123456789abcdef"
    volume.mkdir(parents=True)
    (tmp_path / "link").symlink_to(volume)
    (tmp_path / "evil").mkdir()
    (tmp_path / "d/volumes/fedcba9876543210").symlink_to(tmp_path / "evil")
    host = Host("", str(tmp_path / "d"), simulated=False, open_source=open_source)
    assert inject_limit(container(LOADS, mounts=(at("/run/convgpu", str(tmp_path / "link")),)), host, None) is None
    swapped = at("/run/convgpu", str(tmp_path / "d/volumes/fedcba9876543210"))
    with pytest.raises(NoLimit, match="something else is mounted"):
        inject_limit(container(LOADS, mounts=(swapped,)), host, None)


def test_the_source_of_a_mount_is_opened_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/dev/null")
    (tmp_path / "b").symlink_to("./x/../a")
    (tmp_path / "x").mkdir()
    null = Source("/dev/null", (1, 3))
    assert open_source(f"{tmp_path}/b") == null
    assert open_source(f"{tmp_path}/x/../b") == null
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert open_source(f"/proc/self/fd/{descriptor}") == null
    assert open_source(f"/proc/{os.getpid()}/root/dev/null") == null
    os.close(descriptor)
    assert open_source(str(tmp_path)) == Source(str(tmp_path.resolve()))
    for path in (f"{tmp_path}/missing", "/nul\0"):
        assert open_source(path) == Source(path)


@pytest.mark.parametrize("name", ["plain", "gpu.example.com", "convgpu.com%2Fgpu=all"])
def test_a_gpu_that_is_mounted_under_another_name_is_a_gpu(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/null")
    mount = at("/dev/x", str(tmp_path / name))
    host = Host(
        "", "/d", simulated=False, is_gpu=lambda major, minor: (major, minor) == (1, 3), open_source=open_source
    )
    assert uses_gpu(container(mounts=(mount,), gpu=False), host)
    with pytest.raises(NoLimit, match="has no limit"):
        inject_limit(container(mounts=(mount,), gpu=False), host, None)
    assert not uses_gpu(container(mounts=(at("/dev/x", "/dev/zero"),), gpu=False), host)
