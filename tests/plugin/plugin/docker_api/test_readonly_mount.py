"""The read-only mount of the containers' folders, with real mounts in a namespace of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, subprocess, sys, tempfile, threading
from pathlib import Path
from convgpu.plugin.docker_api import readonly_mount

# As in a managed plugin: the directory is a mount that the host sees too, so new mounts below it go to its peers.
top = Path(sys.argv[1])
subprocess.run(["mount", "--bind", top, top], check=True)
subprocess.run(["mount", "--make-rshared", top], check=True)
tempfile.tempdir = str(top.parent)
folder, target = top / "containers", top / "volumes"
(folder / "volume").mkdir(parents=True)
(folder / "volume/state").write_text("precious")

count = int(sys.argv[2])
all_have_looked, looked = threading.Barrier(count), readonly_mount.is_read_only
first = threading.local()
def look(path):
    found = looked(path)
    if not hasattr(first, "look"):
        first.look = all_have_looked.wait()
    return found
readonly_mount.is_read_only = look

failures = []
def prepare():
    try:
        readonly_mount.ReadOnlyMount(folder, target).prepare()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=prepare) for _ in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert failures == [], failures
assert looked(target) and not looked(folder)
(folder / "volume/state").write_text("changed")
assert (target / "volume/state").read_text() == "changed"
points = [line.split()[4] for line in open("/proc/self/mountinfo")]
assert points.count(str(target)) == 1, points
assert [point for point in points if point.startswith(str(top.parent) + "/")] == [str(top), str(target)]
assert sorted(os.listdir(top.parent)) == ["d"]

# Another one on top of it harms nobody: it is no peer of the folder's mount.
readonly_mount.ReadOnlyMount(folder, target)._make(str(target))
assert looked(target) and not looked(folder)
assert sorted(os.listdir(top.parent)) == ["d"]
"""


@pytest.mark.parametrize("count", [1, 4])
def test_it_is_made_once_and_the_schedulers_folder_stays_writable(tmp_path: Path, count: int) -> None:
    """Two containers that an Engine starts at once when it starts: the second mount lay over the scheduler's folder."""
    if os.geteuid() != 0:
        pytest.skip("a mount needs root")
    (tmp_path / "d").mkdir()
    command = ["unshare", "--mount", sys.executable, "-c", _PROGRAM, tmp_path / "d", str(count)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
