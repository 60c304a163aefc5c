"""A folder is removed whatever its owner puts there meanwhile."""

import os
import threading
from pathlib import Path

import pytest

from convgpu.daemon.containers.folders import Folders
from convgpu.daemon.system.remove_tree import remove_tree


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    library = tmp_path / "libconvgpu.so"
    library.write_bytes(b"library")
    directory = tmp_path / "d"
    directory.mkdir()
    return Folders(directory, library, None)


def test_a_fifo_that_takes_a_folders_place_holds_nobody_up(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opened it waited for the other end, for ever."""
    swapped = folders.make("a") / "folder"
    swapped.mkdir()
    open_now = os.open

    def open_later(path: str, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        if path == "folder" and not swapped.is_fifo():
            swapped.rename(swapped.with_name("old"))
            os.mkfifo(swapped)
        return open_now(path, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_later)
    thread = threading.Thread(target=folders.remove, args=("a",), daemon=True)
    thread.start()
    thread.join(10)
    hangs = thread.is_alive()
    if hangs:
        os.close(open_now(swapped, os.O_WRONLY | os.O_NONBLOCK))
    assert not hangs


def test_everything_goes_and_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    folder = tmp_path / "folder"
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/file").touch()
    (folder / "a/link").symlink_to(outside)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "a/b/fifo")
    remove_tree(folder)
    assert not folder.exists()
    assert (outside / "kept").exists()
    remove_tree(folder)  # it is gone: no error
    link = tmp_path / "link"
    link.symlink_to(outside)
    remove_tree(link)
    assert not link.is_symlink()
    assert (outside / "kept").exists()
