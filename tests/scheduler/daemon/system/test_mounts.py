"""Where a folder lies, and who has it mounted."""

import os
from pathlib import Path

import pytest

from convgpu.daemon.system.mounts import Mount, Place, join, locate, mounts_of, parse_mount

ROOT = Mount(Place(b"8:1", b"/"), b"/")
DATA = Mount(Place(b"8:2", b"/sub"), b"/data")
BIND = Mount(Place(b"8:1", b"/var/a"), b"/data/a")


@pytest.mark.parametrize(
    ("line", "mount"),
    [
        (b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw", Mount(Place(b"98:0", b"/mnt1"), b"/mnt2")),
        (rb"1 2 0:5 /a\040b /c\134d rw - tmpfs none rw", Mount(Place(b"0:5", b"/a b"), b"/c\\d")),
    ],
)
def test_a_line_of_the_kernel(line: bytes, mount: Mount) -> None:
    assert parse_mount(line) == mount


@pytest.mark.parametrize(
    ("folder", "mounts", "place"),
    [
        (b"/var/x", [ROOT], Place(b"8:1", b"/var/x")),
        (b"/", [ROOT], Place(b"8:1", b"/")),
        (b"/data", [ROOT, DATA], Place(b"8:2", b"/sub")),
        (b"/data/b/c", [ROOT, DATA], Place(b"8:2", b"/sub/b/c")),
        (b"/database", [ROOT, DATA], Place(b"8:1", b"/database")),
        (b"/data/a/x", [ROOT, DATA, BIND], Place(b"8:1", b"/var/a/x")),
        (b"/data/x", [ROOT, DATA, Mount(Place(b"0:9", b"/"), b"/data")], Place(b"0:9", b"/x")),
        (b"/x", [], None),
    ],
)
def test_where_a_folder_lies(folder: bytes, mounts: list[Mount], place: Place | None) -> None:
    assert locate(folder, mounts) == place


def test_the_kernel_lists_mounts_as_they_are(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path.resolve())
    place = locate(folder, mounts_of("self"))
    assert place is not None
    assert tmp_path.stat().st_dev == os.makedev(*map(int, place.device.split(b":")))
    assert place.path.endswith(tmp_path.name.encode())


def test_a_process_that_ended_has_nothing_mounted() -> None:
    assert mounts_of(1 << 30) == []


def test_an_entry_of_a_folder() -> None:
    assert [join(b"/", b"a"), join(b"/a", b"b"), join(b"/a", b"")] == [b"/a", b"/a/b", b"/a"]
