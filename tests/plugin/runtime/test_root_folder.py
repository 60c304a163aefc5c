"""Places of the hook in the final root file system, which an image or its owner may have moved."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convgpu.runtime.edits import Host, inject_limit
from convgpu.runtime.last_word import HookUndone
from convgpu.runtime.root_folder import RootFolder

GPU = {"linux": {"devices": [{"path": "/dev/x", "type": "c", "major": 195, "minor": 0}]}}
VOLUME = {"destination": "/run/convgpu", "type": "bind", "source": "/d/volumes/0123456789abcdef"}
FILE = {"destination": "/etc/ld.so.preload", "type": "bind", "source": "/d/ld.so.preload"}
LOADS = "LD_PRELOAD=/run/convgpu/libconvgpu.so"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("run", "etc", "usr", "elsewhere", "var"):
        (tmp_path / folder).mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    return tmp_path


def starts(root: Path, *mounts: dict[str, Any], environment: tuple[str, ...] = (LOADS,)) -> dict[str, Any] | None:
    config = {"process": {"env": list(environment)}, "mounts": list(mounts), **GPU}
    return inject_limit(config, Host("/bin/r", "/d", simulated=False, root=RootFolder(root)), "2g")


def move(root: Path, name: str, target: str) -> None:
    (root / name).rename(root / f"{name}-moved")
    (root / name).symlink_to(target)


def test_an_ordinary_image_starts(root: Path) -> None:
    assert starts(root, VOLUME) is None
    assert starts(root, FILE, VOLUME, environment=()) is None
    assert starts(root) is not None


@pytest.mark.parametrize(
    "target", ["/elsewhere", "elsewhere", "../elsewhere", "run-moved", "/missing", "/proc/self/cwd"]
)
def test_a_moved_run_does_not_start(root: Path, target: str) -> None:
    move(root, "run", target)
    with pytest.raises(HookUndone, match=r"/run/convgpu leads to .* in this container"):
        starts(root, VOLUME)
    with pytest.raises(HookUndone, match="/run/convgpu leads to"):
        starts(root)


def test_a_moved_preload_file_does_not_start(root: Path) -> None:
    (root / "etc/ld.so.preload").symlink_to("/elsewhere/file")
    with pytest.raises(HookUndone, match=r"/etc/ld\.so\.preload leads to /elsewhere/file"):
        starts(root, FILE, VOLUME, environment=())
    with pytest.raises(HookUndone, match=r"/etc/ld\.so\.preload leads to"):
        starts(root)
    assert starts(root, VOLUME) is None


def test_a_mount_that_lands_on_the_volume_by_a_link_of_the_image_lies_over_it(root: Path) -> None:
    (root / "alias").symlink_to("run")
    with pytest.raises(HookUndone, match="the mount at /run/convgpu/x lies over"):
        starts(root, VOLUME, {"destination": "/alias/convgpu/x", "type": "bind", "source": "/data"})
    (root / "deep").symlink_to("/usr/../alias/convgpu")
    with pytest.raises(HookUndone, match="lies over"):
        starts(root, VOLUME, {"destination": "/deep/libconvgpu.so", "type": "bind", "source": "/data"})


def test_links_in_a_mounted_folder_are_followed_too(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shared = tmp_path_factory.mktemp("shared")
    (shared / "convgpu").symlink_to("/elsewhere")
    above = {"destination": "/run", "type": "bind", "source": str(shared)}
    with pytest.raises(HookUndone, match="/run/convgpu leads to /elsewhere"):
        starts(root, above, VOLUME)
    assert starts(root, {"destination": "/run", "type": "tmpfs", "source": "tmpfs"}, VOLUME) is None


def test_another_plugins_file_is_not_ours(root: Path) -> None:
    forged = {**FILE, "source": "/d/../other/ld.so.preload"}
    with pytest.raises(HookUndone, match="would not load the hook"):
        inject_limit(
            {"process": {"env": []}, "mounts": [forged, VOLUME], **GPU},
            Host("", "/d", simulated=False, root=RootFolder(root)),
            "2g",
        )


_PART = st.sampled_from(("a", "b", "c", ".", "..", "l", "m", "a/b", "l/..", "m/../a"))
_PATH = st.lists(_PART, min_size=1, max_size=4).map("/".join)


@given(
    links=st.lists(st.tuples(st.sampled_from(("", "a", "a/b", "c")), st.sampled_from("lm"), _PATH, st.booleans())),
    paths=st.lists(_PATH, min_size=3, max_size=8),
)
@settings(max_examples=60)
def test_paths_lead_where_a_process_in_that_root_finds_them(
    links: list[tuple[str, str, str, bool]], paths: list[str]
) -> None:
    """A child that has the folder as its root opens the path; its inode is that of what we say."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        for folder in ("a/b/c", "b", "c"):
            (top / folder).mkdir(parents=True)
        for place, name, target, absolute in links:
            if not (top / place / name).is_symlink():
                (top / place / name).symlink_to(f"/{target}" if absolute else target)
        for path, inode in zip(paths, _inodes_in_root(top, paths), strict=True):
            if inode:
                found = RootFolder(top).lead(f"/{path}")
                assert os.lstat(f"{top}{found}").st_ino == inode, (path, found)


def _inodes_in_root(top: Path, paths: list[str]) -> list[int]:
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.chroot(top)
            for path in paths:
                try:
                    inode = Path("/", path).stat().st_ino
                except OSError:
                    inode = 0
                os.write(writer, b"%d " % inode)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return [int(word) for word in text.split()]
