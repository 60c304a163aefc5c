"""Who has a file open, whatever it is called, and where it was opened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convgpu.daemon.system import open_files
from convgpu.daemon.system.open_files import has_open, holders, identify, is_from_elsewhere
from convgpu.daemon.system.processes.bounded_looks import BoundedLooks

UNSHARED = "import ctypes, sys; ctypes.CDLL(None).unshare(0x20000); print(flush=True); sys.stdin.read()"


def test_a_file_is_known_by_what_it_is_and_not_by_its_name(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.touch()
    other.symlink_to("/dev/null")
    (tmp_path / "c").hardlink_to(file)
    status = file.stat()
    own = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    told = [identify(str(path)) for path in (file, tmp_path / "c", other, tmp_path / "missing")]
    assert told == [own, own, (1, 3, None), None]
    with (tmp_path / "c").open() as opened:
        found = [one for one in holders([os.getpid(), 2**22 + 1], [own]) if one is not None]
        assert found == [(os.getpid(), str(opened.fileno()))]
    assert [one for one in holders([os.getpid()], [own]) if one is not None] == []


MAPS = """
import mmap, os, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 1, mmap.MAP_SHARED, mmap.PROT_READ)
os.closerange(3, 256)  # the mapping's own descriptor, too
print(flush=True)
sys.stdin.read()
"""


def test_a_process_has_a_file_open_or_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "_looks", BoundedLooks(60.0))  # on a loaded machine 0.2 s may pass, which says yes
    (tmp_path / "a").write_bytes(b"x")
    own = identify(str(tmp_path / "a"))
    assert own is not None
    told = [has_open(os.getpid(), own)]
    with (tmp_path / "a").open("rb"):
        told.append(has_open(os.getpid(), own))
    command, pipe = [sys.executable, "-c", MAPS, str(tmp_path / "a")], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told.append(has_open(process.pid, own))
        process.communicate()
    told.append(has_open(process.pid, own))
    # A descriptor that is gone when it is looked at says yes: the loader has some, so it has to be done.
    command = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told += [has_open(process.pid, own), has_open(process.pid, (1, 9999, None))]  # of the kind of /dev/null
        process.kill()
    assert told == [False, True, True, False, False, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_a_descriptor_that_was_opened_among_other_mounts_was_given(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as opened:
        own = str(opened.fileno())
        command = [sys.executable, "-c", UNSHARED]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, pass_fds=[opened.fileno()], stdin=pipe, stdout=pipe) as process:
            assert process.stdout is not None
            process.stdout.readline()
            told = [is_from_elsewhere(pid, own) for pid in (os.getpid(), process.pid)]
            process.communicate()
    assert told == [False, True]
    assert not is_from_elsewhere(process.pid, own)
