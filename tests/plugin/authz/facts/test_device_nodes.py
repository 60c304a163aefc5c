"""Links and device nodes of a host whose root is a folder of the test."""

from pathlib import Path

import pytest

from convgpu.authz.facts.device_nodes import HostDevices


@pytest.fixture
def host(tmp_path: Path) -> HostDevices:
    (tmp_path / "srv/data").mkdir(parents=True)
    (tmp_path / "srv/file").touch()
    for link, target in (
        ("absolute", "/etc/docker"),
        ("relative", "../etc"),
        ("chain", "absolute/x"),
        ("loop", "loop"),
        ("gpu", "/dev/nvidia0"),
        ("upwards", "../../../../dev"),
    ):
        (tmp_path / "srv" / link).symlink_to(target)
    return HostDevices(lambda: tmp_path, sysfs=tmp_path / "sys", devices=tmp_path / "devices")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/data", "/srv/data"),
        ("/srv/absolute", "/etc/docker"),
        ("/srv/relative/x", "/etc/x"),
        ("/srv/chain/y", "/etc/docker/x/y"),
        ("/srv/upwards", "/dev"),
        ("/srv/missing/z", "/srv/missing/z"),
        ("/var/run/docker.sock", "/run/docker.sock"),
        ("//srv/./data/../absolute", "/etc/docker"),
        ("name", "name"),
    ],
)
def test_links_are_resolved_below_the_hosts_root(host: HostDevices, path: str, expected: str) -> None:
    assert host.resolve(path) == expected


def test_a_loop_of_links_ends(host: HostDevices) -> None:
    assert host.resolve("/srv/loop").startswith("/srv")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/nvidia0", True),
        ("/srv/gpu", True),
        ("/srv/upwards", True),
        ("/", True),
        ("/srv/file", False),
        ("/srv/data", False),
        ("/srv/missing", False),
        ("/srv/nul\0", False),
    ],
)
def test_gpus_are_recognized_through_links(host: HostDevices, path: str, expected: bool) -> None:
    assert host.is_gpu(path) is expected


def test_an_unreadable_path_outside_of_dev_counts_as_a_gpu() -> None:
    host = HostDevices(lambda: None)
    assert host.is_gpu("/srv/x")
    assert not host.is_gpu("/dev/null")
