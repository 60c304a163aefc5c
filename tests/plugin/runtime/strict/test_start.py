"""Paths are opened through no link, and a program of `docker exec` has no more capabilities than its container."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from convgpu.runtime.strict.judgement import NotListed, StrictRules
from convgpu.runtime.strict.open_path import open_path
from convgpu.runtime.strict.start import confine_exec
from convgpu.runtime.strict.user_ids import FIRST


def test_a_path_is_opened_name_by_name_and_kept(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    opened = open_path(f"{tmp_path}/a/b")
    found = (tmp_path / "a/b").stat()
    (tmp_path / "a/b").rename(tmp_path / "elsewhere")
    (tmp_path / "a/b").symlink_to("/etc")
    assert (opened.identity, opened.is_folder) == ((found.st_dev, found.st_ino), True)
    assert Path(opened.link).readlink() == tmp_path / "elsewhere"
    os.close(opened.descriptor)
    file = open_path(f"{tmp_path}/a/file")
    assert file.is_folder is False
    os.close(file.descriptor)


@pytest.mark.parametrize("path", ["link", "link/passwd", "a/up/etc", "nothing", "a/file/x", "ring"])
def test_links_are_not_followed_wherever_they_stand(tmp_path, path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").touch()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "a/up").symlink_to("/")
    (tmp_path / "ring").symlink_to("ring")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"."):
        open_path(f"{tmp_path}/{path}")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.fixture
def exec_of(tmp_path):
    """Return a function: what is left of a program's capabilities in a container with others."""
    (tmp_path / "root/c").mkdir(parents=True)
    (tmp_path / "7").mkdir()

    def run(container, program, *form, table=f"0 {FIRST} 65536", ids=(), started=500):
        (tmp_path / "7/uid_map").write_text(f"{table}\n")
        (tmp_path / "7/stat").write_text(f"7 (a ) b) {' '.join(map(str, range(481, 520)))}\n")
        state = {"init_process_pid": 7, "init_process_start": started}
        state["config"] = {"capabilities": {"Bounding": container}}
        (tmp_path / "root/c/state.json").write_text(json.dumps(state))
        process = tmp_path / "process"
        process.write_text(json.dumps({"args": ["sh"], "capabilities": {"bounding": program, "effective": program}}))
        given = form or ("--process", str(process))
        words = ["--root", f"{tmp_path}/root", "exec", *(each.format(process) for each in given), "--detach", "c"]
        confine_exec(words, StrictRules(ids=ids), tmp_path)
        left = json.loads(process.read_text())
        assert (left["args"], left["capabilities"]["effective"]) == (["sh"], left["capabilities"]["bounding"])
        return left["capabilities"]["bounding"]

    return run


def test_a_program_gets_back_nothing_that_its_container_lost(exec_of):
    everything = ["CAP_CHOWN", "CAP_MKNOD", "CAP_SETFCAP", "CAP_FSETID"]
    assert exec_of(["CAP_CHOWN"], everything) == ["CAP_CHOWN"]
    assert exec_of(["CAP_CHOWN"], everything, "--process={}") == ["CAP_CHOWN"]
    assert exec_of(["CAP_CHOWN"], everything, "-p", "{}") == ["CAP_CHOWN"]
    assert exec_of(everything, everything) == everything
    assert exec_of(["CAP_CHOWN", "CAP_MKNOD"], everything) == ["CAP_CHOWN", "CAP_MKNOD"]


def test_a_program_without_a_description_is_refused(exec_of):
    with pytest.raises(NotListed, match="strict-capabilities"):
        exec_of([], [], "--tty")


def test_no_program_starts_in_a_container_that_has_the_hosts_ids_from_before(exec_of):
    everyone = "0 0 4294967295"
    with pytest.raises(NotListed, match=r"strict-ids: .* Start it again"):
        exec_of([], [], table=everyone)
    assert exec_of([], ["CAP_MKNOD"], table=everyone, ids=("host",)) == []


def test_a_process_that_has_a_containers_number_since_is_not_the_container(exec_of):
    with pytest.raises(NotListed, match=r"strict-exec: .* ended"):
        exec_of([], [], started=499)
    with pytest.raises(NotListed, match=r"strict-ids: .* nobody gave it"):
        exec_of([], [], table="0 4242 1")
    assert exec_of([], ["CAP_MKNOD"], table="0 100000 65536", ids=("shared",)) == []


@pytest.mark.parametrize(("mode", "status"), [("strict", 1), ("enforce", 0)])
def test_no_container_is_restored_from_a_checkpoint(tmp_path, mode, status):
    """Nobody judges its files, which say as whom it runs."""
    rules = tmp_path / "rules.toml"
    rules.write_text(f'mode = "{mode}" # not strict')
    words = [f"--convgpu-rules={rules}", "--convgpu-runtime=true", "--log", f"{tmp_path}/log", "restore", "c"]
    done = subprocess.run(
        [sys.executable, "-m", "convgpu.runtime", *words], check=False, capture_output=True, text=True
    )
    assert (done.returncode, "strict-calls" in done.stderr) == (status, status == 1)
