"""What lies in a container's folder is ours again at each mount, whatever somebody put there."""

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest
from daemon import wait_until

from convgpu.daemon.system.atomic_files import is_delivered

NAMES = ("libconvgpu.so", "ld.so.preload", "scheduler.sock")


def forge_text(path: Path) -> None:
    path.unlink()
    path.write_text("forged")


def forge_same_size(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(b"x" * size)


def forge_link(path: Path) -> None:
    kept = path.with_name("kept")
    path.rename(kept)
    path.symlink_to(kept)


def forge_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def forge_folder(path: Path) -> None:
    path.unlink()
    (path / "in").mkdir(parents=True)


def forge_mode(path: Path) -> None:
    path.chmod(0o4777)


def forge_owner(path: Path) -> None:
    os.chown(path, 1234, 1234)


def forge_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))


def forge_nothing_left(path: Path) -> None:
    path.unlink()


def contents(folder: Path) -> dict[str, object]:
    found = {}
    for name in NAMES:
        status = (folder / name).lstat()
        body = (folder / name).read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[name] = (status.st_mode, status.st_uid, body)
    return found


FORGERIES = [
    *(
        (name, forge)
        for name in NAMES
        for forge in (forge_text, forge_link, forge_pipe, forge_folder, forge_nothing_left)
    ),
    *((name, forge) for name in NAMES[:2] for forge in (forge_same_size, forge_mode, forge_socket, forge_owner)),
    ("scheduler.sock", forge_socket),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to others")
def test_each_forgery_is_made_good_at_the_next_mount(daemon):
    daemon.admin.request("create", name="a", options={"memory": "1g"})
    folder = Path(daemon.admin.request("mount", name="a", id="0")["mountpoint"])
    shipped = contents(folder)
    untouched = (folder / "libconvgpu.so").stat().st_ino
    daemon.admin.request("mount", name="a", id="0")
    assert (folder / "libconvgpu.so").stat().st_ino == untouched
    assert "not ours any more" not in daemon.log.read_text()
    for name, forge in FORGERIES:
        forge(folder / name)
        assert daemon.admin.request("mount", name="a", id="0")["mountpoint"] == str(folder)
        assert contents(folder) == shipped, (name, forge)
        with socket.socket(socket.AF_UNIX) as process:
            process.connect(str(folder / "scheduler.sock"))
    # The log has its lines soon after the answers.
    wait_until(lambda: daemon.log.read_text().count("not ours any more") == len(FORGERIES), "each is said")


def test_a_folder_that_is_gone_is_made_again(daemon):
    daemon.admin.request("create", name="a", options={"memory": "1g"})
    folder = Path(daemon.admin.request("mount", name="a", id="0")["mountpoint"])
    shutil.rmtree(folder)
    daemon.admin.request("mount", name="a", id="1")
    assert set(NAMES) <= {path.name for path in folder.iterdir()}


def test_only_a_regular_file_is_ever_opened(tmp_path, monkeypatch):
    """To open a device is to use it (a watchdog starts), and a container's root may make nodes."""
    opened = []

    def spy(path, flags, *rest, really=os.open):
        descriptor = really(path, flags, *rest)
        opened.append((stat.S_IFMT(os.fstat(descriptor).st_mode), bool(flags & os.O_PATH)))
        return descriptor

    monkeypatch.setattr(os, "open", spy)
    node = tmp_path / "node"
    os.mkfifo(node, 0o644)  # for which nobody needs a privilege
    assert not is_delivered(node, b"", 0o644)
    assert opened == [(stat.S_IFIFO, True)]
