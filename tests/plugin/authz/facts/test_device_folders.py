"""Folders that are given as devices: what is in them is looked for, within what one call may cost."""

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from convgpu.authz.facts.device_nodes import HostDevices
from convgpu.authz.ports import GpuPath

TOP = GpuPath("/top")
TOO_MUCH = GpuPath("/top", is_seen=False)
GPU, NULL = (195, 0), (1, 3)


@pytest.fixture
def host(tmp_path: Path) -> HostDevices:
    (tmp_path / "top").mkdir()
    for number, vendor in enumerate(("0x8086", "0x10de")):
        device = tmp_path / f"sys/dev/char/226:{number}/device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    (tmp_path / "devices").write_text("Character devices:\n  1 mem\n510 nvidia-uvm\n\nBlock devices:\n  8 sd\n")
    return HostDevices(lambda: tmp_path, sysfs=tmp_path / "sys", devices=tmp_path / "devices")


def node(path: Path, numbers: tuple[int, int]) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(*numbers))


def link(path: Path) -> None:
    path.symlink_to("../null")


def null(path: Path) -> None:
    node(path, NULL)


def fill(folder: Path, count: int, make: Callable[[Path], None]) -> None:
    for number in range(count):
        make(folder / f"{number:04}")


def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last name is the last that is looked at."""
    scan = os.scandir

    class Sorted:
        def __init__(self, path: str) -> None:
            with scan(path) as entries:
                self._entries = sorted(entries, key=lambda entry: entry.name)

        def __enter__(self) -> Iterable[os.DirEntry[str]]:
            return iter(self._entries)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Sorted)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, link, null])
def test_a_large_folder_is_looked_through_to_its_last_name(
    host: HostDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    in_order(monkeypatch)
    null(tmp_path / "null")
    fill(tmp_path / "top", 1999, make)
    assert host.gpu_at(["/top"]) is None
    node(tmp_path / "top/last", GPU)
    assert host.gpu_at(["/dev/missing", "/top"]) == TOP


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((195, 7), TOP), ((226, 1), TOP), ((226, 0), None), ((226, 9), None), ((510, 3), TOP), ((1, 3), None)],
)
def test_devices_in_a_folder_are_told_by_their_numbers(
    host: HostDevices, tmp_path: Path, numbers: tuple[int, int], expected: GpuPath | None
) -> None:
    (tmp_path / "top/a/b").mkdir(parents=True)
    node(tmp_path / "top/a/b/x", numbers)
    assert host.gpu_at(["/top"]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("../gpu", TOP),
        ("/gpu", TOP),
        ("../two", TOP),
        ("./..//top/.././gpu", TOP),
        ("/", None),
        ("..", None),
        ("missing", None),
        ("x", None),
        ("/proc/4/fd/7", TOP),
        ("/proc/4/fd/0", None),
        ("../" * 600 + "null", TOO_MUCH),
        ("/proc/4/root/gpu", TOO_MUCH),
    ],
)
def test_links_in_a_folder_lead_where_the_host_says(
    host: HostDevices, tmp_path: Path, text: str, expected: GpuPath | None
) -> None:
    node(tmp_path / "gpu", GPU)
    null(tmp_path / "null")
    (tmp_path / "two").symlink_to("/gpu")
    (tmp_path / "proc/4/fd").mkdir(parents=True)
    (tmp_path / "proc/4/fd/7").symlink_to(tmp_path / "gpu")  # the kernel leads there whatever this text says
    (tmp_path / "proc/4/fd/0").symlink_to("/dev/null")
    (tmp_path / "proc/4/root").symlink_to("/")
    (tmp_path / "top/x").symlink_to(text)
    assert host.gpu_at(["/top"]) == expected


@pytest.mark.parametrize(("make", "count"), [(Path.touch, 510), (Path.mkdir, 46), (link, 29), (null, 85)])
def test_what_a_call_may_cost_is_for_all_its_folders(
    host: HostDevices,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    count: int,
) -> None:
    """A folder, a device and a link cost more than a file, and a node that is named costs nothing."""
    monkeypatch.setattr("convgpu.authz.facts.device_nodes._MAX_COST", 1040)
    null(tmp_path / "null")
    fill(tmp_path / "top", count, make)
    (tmp_path / "more").mkdir()
    fill(tmp_path / "more", count // 5, make)
    assert host.gpu_at(["/null", "/top", *["/null"] * 200]) is None
    assert host.gpu_at(["/more", "/top"]) == TOO_MUCH


@pytest.mark.parametrize(("depth", "expected"), [(200, None), (300, TOO_MUCH)])
def test_a_deep_folder_costs_more_the_deeper_it_is(
    host: HostDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, expected: GpuPath | None
) -> None:
    """Its user may make it as deep as 2,000 folders: what the kernel does for each look grows with that."""
    monkeypatch.setattr("convgpu.authz.facts.device_nodes._MAX_COST", 10_000)
    (tmp_path / "top").joinpath(*["a"] * depth).mkdir(parents=True)
    assert host.gpu_at(["/top"]) == expected


def test_what_only_the_engine_can_read_counts_as_a_gpu(host: HostDevices, tmp_path: Path) -> None:
    """We read its paths below a longer one: what it opens by 4,095 characters the kernel refuses us."""
    name, here = "a" * 200, os.open(tmp_path / "top", os.O_PATH)
    for _ in range(19):
        os.mkdir(name, dir_fd=here)
        deeper = os.open(name, os.O_PATH, dir_fd=here)
        os.close(here)
        here = deeper
    os.mknod("g" * 255, stat.S_IFCHR, os.makedev(*GPU), dir_fd=here)
    os.close(here)
    folder = "/top" + f"/{name}" * 19
    whole = f"{folder}/{'g' * 255}"
    assert (len(whole) < 4096, len(str(tmp_path) + whole) >= 4096) == (True, True)
    assert host.gpu_at([whole]) == GpuPath(whole)
    assert host.gpu_at([folder]) == GpuPath(folder, is_seen=False)
