"""Links and device nodes of a host whose root is a folder of the test."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convgpu.authz.facts.device_nodes import HostDevices
from convgpu.authz.ports import Way


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
        ("process", "/proc/4"),
        ("descriptors", "/proc/self/fd"),
        ("mounts", "/proc/mounts"),
    ):
        (tmp_path / "srv" / link).symlink_to(target)
    (tmp_path / "proc/4/fd").mkdir(parents=True)
    for link, target in (("self", "4"), ("mounts", "self/mounts"), ("4/root", "/"), ("4/fd/7", "/dev/null")):
        (tmp_path / "proc" / link).symlink_to(target)
    return HostDevices(lambda: tmp_path, sysfs=tmp_path / "sys", devices=tmp_path / "devices")


def is_gpu(host: HostDevices, path: str) -> bool:
    return host.gpu_at([path]) is not None


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
        ("/srv/relative/../x", "/x"),
        ("/srv/absolute/../../dev/nvidia0", "/dev/nvidia0"),
        ("/srv/process/root/dev/x", "/"),
        ("/srv/descriptors/7", "/"),
        ("/srv/descriptors/../root/x", "/"),
        ("/srv/mounts", "/proc/4/mounts"),
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
        ("srv/upwards/nvidia0", True),
        ("/srv/absolute/../../dev/nvidia0", True),
        ("/srv/absolute/../gpu", True),  # with `..` taken out as text
        ("/srv/process/root/srv/file", True),
        ("/srv/descriptors/7", True),
        ("/", True),
        ("/srv/file", False),
        ("/srv/data", False),
        ("/srv/missing", False),
        ("/srv/nul\0", False),
    ],
)
def test_gpus_are_recognized_through_links(host: HostDevices, path: str, expected: bool) -> None:
    assert is_gpu(host, path) is expected


def test_an_unreadable_path_outside_of_dev_counts_as_a_gpu() -> None:
    host = HostDevices(lambda: None)
    assert is_gpu(host, "/srv/x")
    assert not is_gpu(host, "/dev/null")


def test_a_chain_that_the_kernel_does_not_follow_and_the_engine_does_is_followed(
    host: HostDevices, tmp_path: Path
) -> None:
    for number in range(300):
        (tmp_path / f"srv/c{number}").symlink_to(f"c{number - 1}" if number else "/dev/nvidia0")
    assert is_gpu(host, "/srv/c250")
    assert host.resolve("/srv/c254") == "/dev/nvidia0"


def test_a_way_has_the_folders_in_which_names_are_looked_up(host: HostDevices) -> None:
    assert host.way("/srv/data/x") == Way("/srv/data/x", ("/", "/srv", "/srv/data"))
    assert host.way("/srv/chain/y") == Way("/etc/docker/x/y", ("/", "/srv", "/etc", "/etc/docker", "/etc/docker/x"))
    assert host.way("/srv/process/root/x").end == "/"


def test_of_a_way_with_many_links_nobody_says_where_it_leads(host: HostDevices, tmp_path: Path) -> None:
    """Each of 3,900 bytes made every look-up of the Engine slow, and what it does by names a race that is won."""
    for number in range(9):
        (tmp_path / f"srv/c{number}").symlink_to("data/../" * 60 + (f"c{number - 1}" if number else "data"))
    assert [host.way(f"/srv/c{number}").end for number in (0, 1, 2, 8)] == ["/srv/data", "/srv/data", "/", "/"]
    for number in range(9):
        (tmp_path / f"srv/s{number}").symlink_to(f"s{number - 1}" if number else "data")
    assert [host.way(f"/srv/s{number}/x").end for number in (7, 8)] == ["/srv/data/x", "/"]


@pytest.mark.parametrize(
    ("mode", "owner", "expected"),
    [(0o755, 0, False), (0o700, 0, False), (0o775, 0, True), (0o1777, 0, True), (0o755, 4242, True)],
)
def test_who_writes_a_folder(host: HostDevices, tmp_path: Path, mode: int, owner: int, expected: bool) -> None:
    (tmp_path / "srv/data").chmod(mode)
    os.chown(tmp_path / "srv/data", owner, 0)
    assert host.others_write("/srv/data") is expected
    assert (host.others_write("/srv/missing/x"), host.others_write("/srv/file")) == (False, False)
    assert HostDevices(lambda: None).others_write("/srv/data")


def test_what_is_missing(host: HostDevices) -> None:
    """A name that leads nowhere is there: `resolve` is asked first."""
    paths = ("/srv/data", "/srv/file", "/srv/loop", "/srv/data/x", "/srv/file/x", "/srv/\0")
    assert [host.is_missing(path) for path in paths] == [False, False, False, True, True, True]
    assert HostDevices(lambda: None).is_missing("/srv/data")


FOLDERS = ("a", "a/b", "a/b/c", "b", "b/c", "c")
LINKS = ("l", "m", "n")
_PART = st.sampled_from(("a", "a/b", "b", "b/c", "c", ".", "..", "l", "l/..", "m", "m/..", "m/../a", "n/.."))
_PATH = st.lists(_PART, min_size=1, max_size=4).map("/".join)


@given(
    links=st.lists(
        st.tuples(st.sampled_from(("", "", "", *FOLDERS)), st.sampled_from(LINKS), _PATH), min_size=3, max_size=9
    ),
    paths=st.lists(_PATH, min_size=4, max_size=12),
)
@settings(max_examples=150)
def test_paths_lead_where_the_kernel_says(links: list[tuple[str, str, str]], paths: list[str]) -> None:
    """Whatever the kernel can open is where we say, by the kernel's own name of what it opened."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch).resolve() / "d/d/d"
        for folder in FOLDERS:
            (top / folder).mkdir(parents=True, exist_ok=True)
        for place, name, target in links:
            with contextlib.suppress(FileExistsError):
                (top / place / name).symlink_to(target)
        host = HostDevices(lambda: Path("/"))
        for path in paths:
            try:
                descriptor = os.open(f"{top}/{path}", os.O_PATH)
            except OSError:
                continue  # the Engine cannot open it either
            try:
                assert host.resolve(f"{top}/{path}") == str(Path(f"/proc/self/fd/{descriptor}").readlink())
            finally:
                os.close(descriptor)


def test_a_path_that_nobody_opens_costs_no_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is looked for once, and what is too long for the kernel not at all."""
    looked = []
    read = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: looked.append(path) or read(path))
    host = HostDevices(lambda: tmp_path)
    (tmp_path / "there").mkdir()
    paths = ["/missing" + "/a" * 300, "/there/" + "a/" * 3000, "/there/../" * 500, "/missing/../there/x/y"]
    led = [host.resolve(path) for path in paths]
    assert led == [paths[0], "/", "/", "/there/x/y"]
    assert [Path(path).name for path in looked] == ["missing", "missing", "there", "x"]


def test_a_path_of_too_many_parts_leads_nowhere(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(600):
        deep /= "a"
    deep.mkdir(parents=True)
    host = HostDevices(lambda: tmp_path)
    assert [host.resolve("/a" * count) for count in (500, 513)] == ["/a" * 500, "/"]
